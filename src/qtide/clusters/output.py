"""What an agent prints: cut into lines, and told to the driver with the ticket of its task.

It belongs to the supervisor: an agent that holds Python's lock, or crashes, is still heard.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from select import select
from threading import Lock

CHUNK = 1 << 16
PIPE = 1 << 20
"""Bytes that may wait in the pipe before a task that prints has to wait itself."""
PAUSE = 0.02
"""Seconds in which lines are gathered: a task that prints many is not slowed down by each."""
MOST = 4 * 2**20
"""Bytes of one task that are passed on."""


def output_pipe() -> tuple[int, int]:
    """A pipe with room for a burst of lines."""
    reading, writing = os.pipe()
    with suppress(OSError):  # where users may not have so much, the usual size will do
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE)
    os.set_blocking(reading, False)
    return reading, writing


class Output:
    """The reading end of the pipe that is an agent's stdout and stderr."""

    def __init__(self, pipe: int, tell: Callable[[int | None, bytes], None]) -> None:
        self._pipe = pipe
        self._tell = tell
        self._lock = Lock()
        self._ticket: int | None = None
        self._rest = b""
        self._passed = 0

    def begin(self, ticket: int | None) -> None:
        """What is printed from now on belongs to this task."""
        self._ticket, self._passed = ticket, 0

    def end(self) -> None:
        """The task is over: tell what is left of it."""
        with self._lock:
            for _ in range(PIPE // CHUNK + 1):  # what a task has started may print for ever
                if not self._read():
                    break
            if self._rest:
                self._pass(self._rest + b"\n")
            if self._passed > MOST:
                self._tell(self._ticket, b"(%d bytes more were left out)\n" % (self._passed - MOST))
            self._ticket, self._rest, self._passed = None, b"", 0

    def watch(self) -> None:
        """Tell what is printed while a task runs."""
        while True:
            select([self._pipe], [], [])
            time.sleep(PAUSE)
            with self._lock:
                while taken := self._read():
                    continue
            if taken is None:
                return

    def _read(self) -> int | None:
        """Take what there is: 0 if there is nothing, None if nobody can print any more."""
        try:
            text = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return 0
        if not text:
            return None
        whole, newline, self._rest = (self._rest + text).rpartition(b"\n")
        if len(self._rest) > CHUNK:  # not a line that anybody reads
            whole, newline, self._rest = whole + newline + self._rest, b"\n", b""
        if newline:
            self._pass(whole + newline)
        return len(text)

    def _pass(self, lines: bytes) -> None:
        if self._passed < MOST:
            self._tell(self._ticket, lines)
        self._passed += len(lines)
