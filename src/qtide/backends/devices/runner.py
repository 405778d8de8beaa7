"""A device in a local worker process, like those of the service, for one payload at a time.

The device may crash, hang or print without harming its user, and its packages are imported while
other things start. A dead worker is replaced when the next payload arrives.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from qtide.backends.devices.device import (
    DeviceAway,
    DeviceChoice,
    DeviceFailed,
    Process,
    WorkerLost,
)
from qtide.backends.payloads.payload import Encoded, PayloadRefused, decode_answer, encode
from qtide.core.processes import Header

STARTS = 2
"""How often to try a start: something else may have killed the first worker."""


class Runner:
    """Starts a worker on request or with the first payload; `close` ends it."""

    def __init__(self, choice: DeviceChoice, log: Path | None = None) -> None:
        self._choice = choice
        self._log = log or Path(os.devnull)
        self._worker: Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tickets = count(1)

    @property
    def is_ready(self) -> bool:
        """Whether the worker has started and is alive."""
        return self._worker is not None and self._worker.alive

    @property
    def pid(self) -> int | None:
        """The worker's process id, if there is a worker."""
        return None if self._worker is None else self._worker.pid

    def start(self) -> None:
        """Start a worker in the background; `ready` reports whether that succeeded."""
        under_way = self._starting is not None and not self._starting.done()
        if not under_way and not self.is_ready:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def ready(self) -> None:
        """Wait for a live worker; raises WorkerLost if none can be started."""
        for _ in range(STARTS - 1):
            with suppress(WorkerLost):
                return await self._started()
        return await self._started()

    async def solve(self, payload: Any, shots: int, seed: int) -> Any:
        """Return the device's answer; raises WorkerLost if the worker dies meanwhile."""
        encoded = await asyncio.to_thread(encode, payload)
        await self.ready()
        assert self._worker is not None
        try:
            async with asyncio.timeout(self._choice.limit):
                header, body = await self._exchange(self._worker, encoded, shots, seed)
        except BaseException as error:  # a worker that may still be busy cannot be reused
            await self._worker.end()
            if isinstance(error, TimeoutError):
                raise self._too_long() from None
            raise
        return await asyncio.to_thread(_answer, header, body)

    async def close(self) -> None:
        """End the worker or cancel its start."""
        if self._starting is not None:
            self._starting.cancel()
            with suppress(asyncio.CancelledError, WorkerLost):
                await self._starting
        if self._worker is not None:
            await self._worker.end()

    async def _started(self) -> None:
        """Wait for the current start, or begin a new one and wait for it."""
        self.start()
        if not self.is_ready and self._starting is not None:
            await asyncio.shield(self._starting)

    async def _start(self) -> None:
        kind, options = self._choice.kind, self._choice.options
        with self._log.open("ab") as log:
            self._worker = await Process.start(kind, options, None, log)

    async def _exchange(
        self, worker: Process, encoded: Encoded, shots: int, seed: int
    ) -> tuple[Header, bytes]:
        """Send an order and wait for its answer; the profile's time is not simulated here."""
        ticket = str(next(self._tickets))
        terms = {"ticket": ticket, "shots": shots, "seed": seed, "seconds": 0.0}
        worker.send({"format": encoded.format} | terms, encoded.data)
        async for header, body in worker.messages():
            if header.get("ticket") == ticket:
                return header, body
        raise WorkerLost(f"the process of the {self._choice.kind} ended while it had a payload")

    def _too_long(self) -> DeviceFailed:
        kind, limit = self._choice.kind, self._choice.limit
        return DeviceFailed(
            f"the {kind} did not answer within {limit:g} s; hand in less at once, or allow for more"
            f" as in --qpu {kind},limit={2 * limit:g}"
        )


def _answer(header: Header, body: bytes) -> Any:
    """Return the worker's answer, or raise the reason why there is none."""
    if "format" in header:
        return decode_answer(Encoded(header["format"], body))
    if "refused" in header:
        raise PayloadRefused(header["refused"])
    if "fault" in header:
        raise DeviceAway(header["fault"])
    raise DeviceFailed(header["error"])
