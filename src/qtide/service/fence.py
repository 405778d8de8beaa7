"""The fence: a process that kills the device workers of a service whose lease has run out.

The service itself may be suspended, or wait for a database that does not answer, while a standby
already leads. Its workers must not run tasks then, and only another process can see to that.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from select import select
from typing import NoReturn

from qtide.core.processes import die_with_parent

POLL = 0.05
"""Seconds between two looks at the lease."""
WORKER = b"qtide.backends.devices.worker"
DEADLINE = struct.Struct("d")


class Fence:
    """The deadline of the lease, in memory that the service shares with the process beside it."""

    def __init__(self) -> None:
        self._memory = mmap(-1, DEADLINE.size)
        self.process = 0
        """The id of the process that watches."""

    def start(self) -> None:
        """Start the process; call this before the service has threads."""
        service = os.getpid()
        self.process = os.fork()
        if self.process == 0:
            try:
                die_with_parent()
                self._watch(service)
            finally:
                os._exit(1)  # nothing of the service's own code may go on here

    def stop(self) -> None:
        """End the process."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)

    def renew(self, deadline: float) -> bool:
        """Note until when, on the monotonic clock, the workers may run; False if nobody watches."""
        DEADLINE.pack_into(self._memory, 0, deadline)
        try:
            return os.waitpid(self.process, os.WNOHANG) == (0, 0)
        except ChildProcessError:
            return False

    def _watch(self, service: int) -> NoReturn:
        for each in (signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # a terminal sends them to the service as well
        while os.getppid() == service:  # it may have died before we asked to die with it
            select([], [], [], POLL)  # by no clock that can be moved
            (deadline,) = DEADLINE.unpack_from(self._memory)
            if deadline and time.monotonic() > deadline:
                for worker in workers(service):
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
        os._exit(0)


def workers(service: int) -> list[int]:
    """The process ids of a service's device workers."""
    children: list[str] = []
    for thread in Path(f"/proc/{service}/task").glob("*/children"):
        with suppress(OSError):  # it has just ended
            children += thread.read_text().split()
    return [int(each) for each in children if _works(each)]


def _works(process: str) -> bool:
    try:
        return WORKER in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False
