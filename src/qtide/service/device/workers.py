"""The workers of devices, as the service sees them: processes of this host, or simulated ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from qtide.backends.devices.device import Occupation, OccupationLog, Process
from qtide.core.processes import Header
from qtide.service.configuration import DeviceSetup


class WorkerLink(Protocol):
    """A ready worker, which runs the tasks it is sent one by one and reports on them."""

    properties: dict[str, Any]
    """What its device accepts: formats, limits and the like."""

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it a message; if it has gone, the end of `messages` tells."""

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Yield its messages until it ends."""

    async def end(self) -> None:
        """Kill it, whatever it is doing."""

    async def occupations(self) -> list[Occupation]:
        """What occupied the device, once the worker has ended, whether it was reported or not."""


class Workers(Protocol):
    """Where workers come from."""

    async def start(self, name: str, setup: DeviceSetup, *, checks: bool = False) -> WorkerLink:
        """Start a worker of the named device, or raise `WorkerLost`; `checks`: it runs nothing."""

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """By device, what occupied it under an earlier service, whether that is known or not."""


class WorkerProcesses:
    """Workers as processes on this host, with their files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._logs, self._occupied = folder / "log", folder / "occupied"

    async def start(self, name: str, setup: DeviceSetup, *, checks: bool = False) -> WorkerLink:
        """Start a worker; what its device prints goes to a log."""
        occupied = None if checks else self._occupied / name
        with (self._logs / f"{name}.log").open("ab") as log:
            return await Process.start(setup.kind, setup.options, setup.python, log, occupied)

    async def left_behind(self) -> dict[str, list[Occupation]]:
        """What the workers of an earlier service noted."""
        for folder in (self._logs, self._occupied):
            folder.mkdir(parents=True, exist_ok=True)
        return {file.name: await OccupationLog.settled(file) for file in self._occupied.iterdir()}
