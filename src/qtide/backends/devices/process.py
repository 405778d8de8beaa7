"""The worker of a device as a child process, seen from the service or the run that started it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import IO, Any

from qtide.core.errors import QtideError
from qtide.core.processes import Child, Header

START_LIMIT = 60.0
"""Seconds within which a worker has to be ready: vendors' packages are slow to import."""


class WorkerLost(QtideError):  # noqa: N818 - what happened
    """The worker of a device has ended, or did not start."""


class Process:
    """One worker, from its start to its end."""

    def __init__(self, child: Child, properties: dict[str, Any]) -> None:
        self._child = child
        self.properties = properties

    @staticmethod
    async def start(
        kind: str, options: dict[str, Any], python: str | None, log: IO[bytes]
    ) -> Process:
        """Start a worker, and return when its device is ready."""
        python = python or sys.executable
        try:
            child = await Child.start((python, "-m", "qtide.backends.devices.worker"), log)
        except OSError as error:
            raise WorkerLost(f"{python} cannot be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(START_LIMIT):
                return Process(child, await _greet(child, kind, options))
        except TimeoutError:
            await child.kill()
            raise WorkerLost(f"the device was not ready within {START_LIMIT:g} s") from None
        except BaseException:
            await child.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child.alive

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it an order, or a payload to check."""
        self._child.send(header, body)

    def messages(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Its messages, until it ends."""
        return self._child.messages()

    async def end(self) -> None:
        """Kill it, with everything it started."""
        await self._child.kill()


async def _greet(child: Child, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Tell the worker which device it has; returns the device's properties."""
    child.send({"kind": kind, "options": options})
    try:
        header, _ = await child.message()
    except (asyncio.IncompleteReadError, ConnectionError):
        raise WorkerLost("the device's process ended while it started; see its log") from None
    if "failed" in header:
        raise WorkerLost(f"the device did not start: {header['failed']}")
    properties: dict[str, Any] = header["ready"]
    return properties
