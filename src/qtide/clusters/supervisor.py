"""The supervisor: the process between a driver and the agent that works for it.

A task may hold Python's lock for minutes, and its process then says nothing. So a process of its
own passes tasks and answers on, says every few seconds that the node is there, and ends the agent
when the driver is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import BinaryIO, NoReturn

from qtide.system.frames import frame, read

BEAT = 5.0
"""Seconds between two signs of life, unless the driver says otherwise."""
FORSAKEN = 60
"""After so many without one of the driver, a node with a farewell gives itself back."""
DRAIN = 1.0
"""Seconds for a dead agent's last answer; what it has started may keep the pipe open for longer."""
LIMIT = 60.0
"""Seconds that the farewell may take."""


def guarded(beat: float = BEAT, farewell: Sequence[str] = ()) -> tuple[BinaryIO, BinaryIO]:
    """Leave this process to a supervisor, and return in its child.

    Gives the pipe by which tasks come in, and the one by which answers go out.
    The farewell is a command that gives the node back; without one, it is nobody's to give.
    """
    (tasks, to_agent), (from_agent, answers) = os.pipe(), os.pipe()
    agent = os.fork()
    if agent:
        os.close(tasks)
        os.close(answers)
        pipes = os.fdopen(to_agent, "wb", buffering=0), os.fdopen(from_agent, "rb")
        Supervisor(agent, *pipes, beat, farewell).serve()
    os.close(to_agent)
    os.close(from_agent)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a task prints must not end up among the answers
    return os.fdopen(tasks, "rb"), os.fdopen(answers, "wb", buffering=0)


class Supervisor:
    """Speaks for an agent, whatever that is doing."""

    def __init__(
        self,
        agent: int,
        to_agent: BinaryIO,
        from_agent: BinaryIO,
        beat: float,
        farewell: Sequence[str],
    ) -> None:
        self._agent = agent
        self._to_agent = to_agent
        self._from_agent = from_agent
        self._beat = beat
        self._farewell = farewell
        self._silent = 0
        self._alone = False
        self._mouth = Lock()
        self._out = os.fdopen(1, "wb", buffering=0)

    def serve(self) -> NoReturn:
        """Pass on what is said until one side is gone, then end as the agent did."""
        errands = (self._pass_on, self._listen, self._pulse)
        answers, *_ = threads = [Thread(target=each, daemon=True) for each in errands]
        for thread in threads:
            thread.start()
        _, status = os.waitpid(self._agent, 0)
        answers.join(DRAIN)
        if self._alone and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # with everything that the agent has started
        _end_as(os.waitstatus_to_exitcode(status))

    def _pass_on(self) -> None:
        while (answer := read(self._from_agent)) is not None:
            self._say(frame(*answer))

    def _listen(self) -> None:
        while (message := read(sys.stdin.buffer)) is not None:
            self._silent = 0
            if message[0]:  # an empty header is but a sign of life
                with suppress(BrokenPipeError):
                    self._to_agent.write(frame(*message))
        self._forsake()

    def _pulse(self) -> None:
        """Beats are counted, not timed: a node that was suspended has missed none of them."""
        while not self._alone:
            time.sleep(self._beat)
            self._say(frame({}))
            self._silent += 1
            if self._farewell and self._silent > FORSAKEN:
                _call(self._farewell)
                self._forsake()

    def _say(self, words: bytes) -> None:
        with self._mouth:
            try:
                self._out.write(words)
            except BrokenPipeError:
                self._forsake()

    def _forsake(self) -> None:
        """The driver is gone: nobody wants to know what the agent is doing."""
        self._alone = True
        with suppress(ProcessLookupError):
            os.kill(self._agent, signal.SIGKILL)


def _call(words: Sequence[str]) -> None:
    """Run a command; there is nobody left to tell if it fails."""
    import subprocess  # only here: an agent starts faster without

    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(words, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False)


def _end_as(code: int) -> NoReturn:
    if code < 0:
        with suppress(OSError):  # a kill cannot be handled anyway
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
