"""The supervisor: the process between a driver and its agent.

A task may hold Python's GIL for minutes, during which its process cannot send anything. So a
separate process forwards tasks and answers, sends a heartbeat every few seconds, and kills the
agent when the driver is gone.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from select import select
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from qtide.core.processes import adopt_orphans, frame, kill_below, read, wake_at_parents_death

if TYPE_CHECKING:
    from qtide.backends.clusters.nursery import PartAgents

BEAT = 5.0
"""Default seconds between two heartbeats."""
ABANDONED = 60
"""Number of missed driver heartbeats after which a node releases itself, if it can."""
DRAIN = 1.0
"""Seconds to wait for a dead agent's last answer; its children may keep the pipe open longer."""
LIMIT = 60.0
"""Seconds that the release command may take."""


def guarded(
    terms: dict[str, Any], beat: float = BEAT, release_command: Sequence[str] = ()
) -> tuple[BinaryIO, BinaryIO]:
    """Turn this process into a supervisor, and return in its child, the agent.

    Returns the pipe that delivers tasks and the pipe for answers. `terms` are the limits and the
    preparation of more agents, for tasks that share the node. The release command returns the
    node to its scheduler; without one, the supervisor never releases the node.
    """
    (tasks, to_agent), (from_agent, answers) = os.pipe(), os.pipe()
    printed, printing = output_pipe()
    agent = os.fork()
    if agent:
        os.close(tasks)
        os.close(answers)
        os.close(printing)
        pipes = os.fdopen(to_agent, "wb", buffering=0), os.fdopen(from_agent, "rb")
        Supervisor(agent, *pipes, printed, terms, beat, release_command).serve()
    os.close(to_agent)
    os.close(from_agent)
    os.close(printed)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):  # a task's output must not mix with the answers
        os.dup2(printing, stream)
    os.close(printing)
    return os.fdopen(tasks, "rb"), os.fdopen(answers, "wb", buffering=0)


class Supervisor:
    """Forwards an agent's tasks and answers, and sends its heartbeats."""

    def __init__(
        self,
        agent: int,
        to_agent: BinaryIO,
        from_agent: BinaryIO,
        printed: int,
        terms: dict[str, Any],
        beat: float,
        release_command: Sequence[str],
    ) -> None:
        self._agent = agent
        self._to_agent = to_agent
        self._from_agent = from_agent
        self._output = Output(
            printed, lambda ticket, text: self._send(frame({"log": ticket}, text))
        )
        self._terms = terms
        self._parts: PartAgents | None = None
        self._beat = beat
        self._release_command = release_command
        self._silent = 0
        self._alone = False
        self._sending = Lock()
        self._out = os.fdopen(1, "wb", buffering=0)

    def serve(self) -> NoReturn:
        """Forward messages until one side is gone, then exit as the agent did."""
        jobs = (self._pass_on, self._listen, self._pulse, self._output.watch)
        answers, *_ = threads = [Thread(target=each, daemon=True) for each in jobs]
        for thread in threads:
            thread.start()
        wake_at_parents_death()
        adopt_orphans()
        _, status = os.waitpid(self._agent, 0)
        kill_below(os.getpid())  # everything that the agent has started
        answers.join(DRAIN)
        self._output.end()
        if self._alone and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        _end_as(os.waitstatus_to_exitcode(status))

    def _pass_on(self) -> None:
        while (answer := read(self._from_agent)) is not None:
            if "said" not in answer[0]:  # the task runs on
                self._output.end()
            self._send(frame(*answer))

    def _listen(self) -> None:
        while (message := read(sys.stdin.buffer)) is not None:
            self._silent = 0
            if "slot" in message[0]:
                self._part_agents().perform(*message)
            elif "end" in message[0]:
                self._part_agents().end(message[0]["end"])
            elif message[0]:  # an empty header is a heartbeat
                if "told" not in message[0]:
                    self._output.begin(message[0].get("ticket"))
                with suppress(BrokenPipeError):
                    self._to_agent.write(frame(*message))
        self._abandon()

    def _part_agents(self) -> PartAgents:
        if self._parts is None:
            # imported late, as most nodes run one task at a time
            from qtide.backends.clusters.nursery import PartAgents

            self._parts = PartAgents(self._send, self._terms)
        return self._parts

    def _pulse(self) -> None:
        """Send heartbeats. They are counted, not timed: a suspended node counts none as missed."""
        while not self._alone:
            time.sleep(self._beat)
            self._send(frame({}))
            self._silent += 1
            if self._release_command and self._silent > ABANDONED:
                _call(self._release_command)
                self._abandon()

    def _send(self, message: bytes) -> None:
        with self._sending:
            try:
                self._out.write(message)
            except BrokenPipeError:
                self._abandon()

    def _abandon(self) -> None:
        """Kill the agent, as the driver is gone."""
        self._alone = True
        with suppress(ProcessLookupError):
            os.kill(self._agent, signal.SIGKILL)


def _call(command: Sequence[str]) -> None:
    """Run a command and ignore its failure, as nobody is left to report it to."""
    import subprocess  # imported late, so that an agent starts faster

    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False)


def _end_as(code: int) -> NoReturn:
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


CHUNK = 1 << 16
PIPE = 1 << 20
"""Bytes that the pipe buffers before a printing task blocks."""
PAUSE = 0.02
"""Seconds for which lines are collected, so that single lines do not slow down a task."""
MOST = 4 * 2**20
"""Maximum bytes of one task's output to forward."""


def output_pipe() -> tuple[int, int]:
    """Create a pipe with room for a burst of lines."""
    reading, writing = os.pipe()
    with suppress(OSError):  # if users may not have that much, the default size will do
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    os.set_blocking(reading, False)
    return reading, writing


class Output:
    """The read end of the pipe for an agent's stdout and stderr."""

    def __init__(self, pipe: int, tell: Callable[[int | None, bytes], None]) -> None:
        self._pipe = pipe
        self._tell = tell
        self._lock = Lock()
        self._ticket: int | None = None
        self._rest = b""
        self._passed = 0

    def begin(self, ticket: int | None) -> None:
        """Attribute output from now on to this task."""
        self._ticket, self._passed = ticket, 0

    def end(self) -> None:
        """Report the rest of a finished task's output."""
        with self._lock:
            for _ in range(PIPE // CHUNK + 1):  # bounded: a task's children may print forever
                if not self._read():
                    break
            if self._rest:
                self._pass(self._rest + b"\n")
            if self._passed > MOST:
                self._tell(self._ticket, b"(%d bytes more were left out)\n" % (self._passed - MOST))
            self._ticket, self._rest, self._passed = None, b"", 0

    def close(self) -> None:
        """Close the pipe, of which nothing more is read."""
        with self._lock:
            os.close(self._pipe)
            self._pipe = -1

    def watch(self) -> None:
        """Report output while a task runs."""
        while True:
            select([self._pipe], [], [])
            time.sleep(PAUSE)
            if not self.take():
                return

    def take(self) -> bool:
        """Report what has been printed; return whether more may come."""
        with self._lock:
            while taken := self._read():
                continue
        return taken is not None

    def _read(self) -> int | None:
        """Read what is available; return the size, 0 if there is nothing, None at end of file."""
        if self._pipe < 0:
            return None
        try:
            text = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return 0
        if not text:
            return None
        whole, newline, self._rest = (self._rest + text).rpartition(b"\n")
        if len(self._rest) > CHUNK:  # too long for a line that anybody reads: break it
            whole, newline, self._rest = whole + newline + self._rest, b"\n", b""
        if newline:
            self._pass(whole + newline)
        return len(text)

    def _pass(self, lines: bytes) -> None:
        if self._passed < MOST:
            self._tell(self._ticket, lines)
        self._passed += len(lines)
