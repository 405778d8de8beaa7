"""The service's end of the pipe to a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import IO, Any

from qtide.errors import QtideError
from qtide.system.frames import SIZES, Header, decode, frame

START_LIMIT = 60.0
"""Seconds within which a worker has to be ready: vendors' packages are slow to import."""


class WorkerLost(QtideError):  # noqa: N818 - what happened
    """The process of a device ended, or did not start."""


class Process:
    """One worker, from its start to its end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.properties: dict[str, Any] = {}

    @staticmethod
    async def start(
        kind: str, options: dict[str, Any], python: str | None, log: IO[bytes]
    ) -> Process:
        """Start a worker, and return when its device is ready."""
        process = Process(await _spawn(python or sys.executable, log))
        try:
            async with asyncio.timeout(START_LIMIT):
                await process._greet(kind, options)
        except TimeoutError:
            await process.end()
            raise WorkerLost(f"the device was not ready within {START_LIMIT:g} s") from None
        except BaseException:
            await process.end()
            raise
        return process

    def send(self, header: Header, body: bytes = b"") -> None:
        """Send it an order; the reader of its answers notices if it has ended."""
        assert self._process.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(frame(header, body))

    async def replies(self) -> AsyncIterator[tuple[Header, bytes]]:
        """Its answers, until it ends."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                yield await self._message()

    async def end(self) -> None:
        """Kill it, with everything it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()

    async def _greet(self, kind: str, options: dict[str, Any]) -> None:
        self.send({"kind": kind, "options": options})
        try:
            header, _ = await self._message()
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLost("the device's process ended during its start; see its log") from None
        if "failed" in header:
            raise WorkerLost(f"the device did not start: {header['failed']}")
        self.properties = header["ready"]

    async def _message(self) -> tuple[Header, bytes]:
        assert self._process.stdout is not None
        sizes = await self._process.stdout.readexactly(SIZES.size)
        head, body = SIZES.unpack(sizes)
        return decode(await self._process.stdout.readexactly(head + body), head)


async def _spawn(python: str, log: IO[bytes]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *(python, "-m", "qtide.devices.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            limit=2**20,
        )
    except OSError as error:
        raise WorkerLost(f"{python} cannot be started: {error.strerror}") from None
