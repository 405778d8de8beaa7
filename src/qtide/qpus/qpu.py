"""A QPU: one device that serves one job at a time, or N virtual QPUs with a queue in front.

A lease is a slot: the right to hand in payloads, given by the QPU itself or by a cluster. The
device takes payloads one after the other, first come first served, whoever holds the leases. A
lease tells where its payload stands and when it is expected to start and to end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from qtide.errors import PhaseError
from qtide.programs.job import Job
from qtide.qpus.devices.device import Device
from qtide.qpus.fifo import FifoSlots
from qtide.qpus.profile import Profile
from qtide.qpus.slots import Slot, Slots
from qtide.world.world import Future, World


class QpuFailed(PhaseError):  # noqa: N818 - what happened
    """The device failed while it worked on a payload."""


class Outlook(NamedTuple):
    """Where a payload stands: how many are before it, and its expected start and end."""

    position: int
    start: float
    end: float


@dataclass(eq=False)
class Turn:
    """A payload in the device's queue."""

    seconds: float
    go: Future[None]
    began: float | None = None


class Lease:
    """A slot of a QPU, held by one job."""

    def __init__(self, qpu: Qpu, job: Job, slot: Slot) -> None:
        self._qpu = qpu
        self._job = job
        self._slot: Slot | None = slot
        self._turns: list[Turn] = []

    async def run(self, payload: Any, shots: int | None, seed: int) -> Any:
        """The device's answer."""
        self._qpu.device.check(payload)
        if self._slot is not None:
            await self._slot.ready()
        if self._slot is None:
            raise QpuFailed("the lease of the QPU was given back already")
        turn = Turn(self._qpu.profile.seconds(payload, shots), self._qpu.world.future())
        self._turns.append(turn)
        try:
            return await self._qpu.serve(turn, self._job, payload, shots, seed)
        finally:
            self._turns.remove(turn)

    @property
    def outlook(self) -> Outlook | None:
        """Where the payload that was handed in last stands; None if there is none."""
        return self._qpu.outlook(self._turns[-1]) if self._turns else None

    def release(self) -> None:
        """Give the slot back; twice does no harm."""
        if self._slot is not None:
            slot, self._slot = self._slot, None
            slot.release()


class Qpu:
    """One device behind `slots` leases."""

    def __init__(
        self,
        world: World,
        device: Device,
        profile: Profile,
        slots: int = 1,
        fails: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.world = world
        self.device = device
        self.profile = profile
        self.slots = slots
        self.admission: Slots = FifoSlots(world, slots)
        """Who gives the slots; a cluster that admits to the QPU takes the place of our own."""
        self._fails = fails
        self._served = 0
        self._queue: deque[Turn] = deque()

    async def lease(self, job: Job) -> Lease:
        """Wait for a slot."""
        slot = self.admission.take(job)
        if slot is None:
            with job.ledger.span("wait", "qpu", "a lease"):
                slot = await self.admission.acquire(job)
        return Lease(self, job, slot)

    def take(self, job: Job) -> Lease | None:
        """A slot at once, if one is free and nobody waits for it."""
        slot = self.admission.take(job)
        return None if slot is None else Lease(self, job, slot)

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot has become free."""
        self.admission.watch(freed)

    async def serve(self, turn: Turn, job: Job, payload: Any, shots: int | None, seed: int) -> Any:
        """Run a payload when its turn has come."""
        try:
            await self._line_up(turn, job)
            turn.began = self.world.now()
            with job.ledger.span("busy", f"qpu/{self.device.name}", type(payload).__name__):
                return await self._solve(turn, payload, shots, seed)
        finally:
            self._queue.remove(turn)
            if self._queue and not self._queue[0].go.done():
                self._queue[0].go.set_result(None)

    def outlook(self, turn: Turn) -> Outlook:
        """When the payloads before this one, and this one, should be through."""
        now = self.world.now()
        position = self._queue.index(turn)
        start = now
        for each in list(self._queue)[:position]:
            start += self._remaining(each, now)
        if turn.began is not None:
            start = turn.began
        return Outlook(position, start, max(now, start + turn.seconds))

    async def _line_up(self, turn: Turn, job: Job) -> None:
        self._queue.append(turn)
        if self._queue[0] is turn:
            return
        with job.ledger.span("wait", "qpu", "the device"):
            await turn.go

    async def _solve(self, turn: Turn, payload: Any, shots: int | None, seed: int) -> Any:
        """The answer, once the profile's time is over: emulating never takes less."""
        self._served += 1
        number, began = self._served, self.world.now()
        shots = self.profile.shots if shots is None else shots
        answer = await self.world.offload(self.device.solve, payload, shots, seed)
        await self.world.sleep(began + turn.seconds - self.world.now())
        if self._fails(number):
            raise QpuFailed(f"the {self.profile.name} QPU failed on its payload {number}")
        return answer

    def _remaining(self, turn: Turn, now: float) -> float:
        return turn.seconds if turn.began is None else max(0.0, turn.began + turn.seconds - now)
