"""The service's link to a worker: a process on this host, or a simulated one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from qtide.devices.process import Process
from qtide.service.configuration import DeviceSetup
from qtide.system.frames import Header


class WorkerLink(Protocol):
    """A worker that is ready: it runs what it is sent, one by one, and reports on it."""

    properties: dict[str, Any]
    """What its device takes: formats, limits and the like."""

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it a message; if it is gone, the listener learns that."""

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Its messages, until it ends."""

    async def end(self) -> None:
        """Kill it, whatever it is doing."""


StartWorker = Callable[[str, DeviceSetup], Awaitable[WorkerLink]]
"""Starts a worker of the device with that name; raises WorkerLost if that fails."""


def processes(logs: Path) -> StartWorker:
    """Workers as processes on this host; what a device prints goes to its log."""

    async def start(name: str, setup: DeviceSetup) -> WorkerLink:
        with (logs / f"{name}.log").open("ab") as log:
            return await Process.start(setup.kind, setup.options, setup.python, log)

    return start
