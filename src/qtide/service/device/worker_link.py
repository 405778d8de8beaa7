"""The service's end of a worker: a process of this host, or one of a simulation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from qtide.devices.process import Process
from qtide.service.configuration import DeviceSetup
from qtide.system.frames import Header


class WorkerLink(Protocol):
    """A worker that is ready: it runs what it is sent, one after the other, and says so."""

    properties: dict[str, Any]
    """What its device takes."""

    def send(self, header: Header, body: bytes = b"") -> None:
        """Give it something to do; whoever listens hears of its end as well."""

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """What it says, until it ends."""

    async def end(self) -> None:
        """End it, whatever it is doing."""


StartWorker = Callable[[str, DeviceSetup], Awaitable[WorkerLink]]
"""Starts a worker of the device of that name; raises WorkerLost if that cannot be."""


def processes(logs: Path) -> StartWorker:
    """Workers as processes of this host; what a device prints goes to its log."""

    async def start(name: str, setup: DeviceSetup) -> WorkerLink:
        with (logs / f"{name}.log").open("ab") as log:
            return await Process.start(setup.kind, setup.options, setup.python, log)

    return start
