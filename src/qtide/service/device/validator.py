"""The validator: checks payloads before they are accepted, in a process that may be sacrificed.

It is a second worker of the same device, which never runs anything. A payload that hangs it or
kills it is refused; all others wait a moment longer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from qtide.devices.process import WorkerLost
from qtide.payloads.encoded import Encoded, decode
from qtide.payloads.payload import Burst, PayloadRefused
from qtide.service.configuration import DeviceSetup
from qtide.service.device.worker_link import StartWorker, WorkerLink
from qtide.world import World
from qtide.world.lock import Lock

LIMIT = 5.0
"""Seconds that a check may take."""


@dataclass(frozen=True)
class Checked:
    """A payload that the device takes, as it should be stored, and how many circuits it has."""

    encoded: Encoded
    size: int = 1
    qubits: int = 0
    seconds: float | None = None
    """How long it takes, if it says so itself."""


class Validator:
    """One worker, started when it is first needed."""

    def __init__(
        self, name: str, setup: DeviceSetup, world: World, start_worker: StartWorker
    ) -> None:
        self._name = name
        self._setup = setup
        self._world = world
        self._start_worker = start_worker
        self._worker: WorkerLink | None = None
        self._one_at_a_time = Lock(world)
        self._numbers = count()

    async def check(self, encoded: Encoded) -> Checked:
        """Refuse a payload, with a reason, or return it as it should be stored."""
        if encoded.format == "burst":
            burst: Burst = decode(encoded)
            return Checked(encoded, seconds=burst.seconds)
        async with self._one_at_a_time:
            worker = await self._running_worker()
            try:
                return await self._world.timeout(LIMIT, self._checked(worker, encoded))
            except TimeoutError:
                await self.close()
                raise PayloadRefused(f"the payload took more than {LIMIT:g} s to check") from None

    async def warm_up(self) -> None:
        """Start before the first payload comes."""
        async with self._one_at_a_time:
            with suppress(WorkerLost):
                await self._running_worker()

    async def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.end()

    async def _running_worker(self) -> WorkerLink:
        if self._worker is None:
            self._worker = await self._start_worker(self._name, self._setup)
        return self._worker

    async def _checked(self, worker: WorkerLink, encoded: Encoded) -> Checked:
        ticket = f"check {next(self._numbers)}"
        worker.send({"ticket": ticket, "check": True, "format": encoded.format}, encoded.data)
        async for header, body in worker.messages():
            if header["ticket"] != ticket:  # an answer that is no longer waited for
                continue
            if "away" in header:
                raise WorkerLost(f"the payload cannot be checked now: {header['away']}")
            if "refused" in header:
                raise PayloadRefused(header["refused"])
            return Checked(Encoded(header["format"], body), header["size"], header.get("qubits", 0))
        await self.close()
        raise PayloadRefused("the payload ended the process that checked it")
