"""A QPU: one device that serves one job at a time, or N virtual QPUs that share its queue.

A lease is a slot: the right to submit payloads, granted by the QPU itself or by a cluster. It knows
where its payload stands and when that is expected to start and to end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from qtide.devices.profile import Profile
from qtide.errors import PhaseError
from qtide.forecasts.outlook import Outlook
from qtide.forecasts.waits import Waits
from qtide.jobs.job import Job
from qtide.leases.fifo import FifoSlots
from qtide.leases.slots import Slot, Slots
from qtide.world.world import World

AGAIN = 10.0
"""For how many times as long as a job waited for a slot in vain, none is expected."""


class QpuFailed(PhaseError):  # noqa: N818 - what happened
    """The device failed on a payload."""


class QpuBusy(PhaseError):  # noqa: N818 - what happened
    """The device did not begin with a payload in time."""


class QpuTask(ABC):
    """A submitted payload."""

    @property
    @abstractmethod
    def outlook(self) -> Outlook:
        """Where it stands."""

    @abstractmethod
    async def run(self) -> Any:
        """Queue for the device, and return its answer."""


@dataclass(frozen=True)
class Payload:
    """What a job submits."""

    job: Job
    content: Any
    shots: int | None
    seed: int
    slot: Slot | None = None
    """By which right."""
    begun: Callable[[], None] = lambda: None
    """Called when the device begins with it."""


class Lease:
    """A slot of a QPU, held by one job."""

    def __init__(self, qpu: Qpu, job: Job, slot: Slot) -> None:
        self._qpu = qpu
        self._job = job
        self._slot: Slot | None = slot
        self._tasks: list[QpuTask] = []

    async def run(
        self,
        payload: Any,
        shots: int | None,
        seed: int,
        begun: Callable[[], None] = lambda: None,
    ) -> Any:
        """The device's answer; `begun` is called when the device begins with the payload."""
        if self._slot is not None:
            await self._slot.ready()
        if self._slot is None:
            raise QpuFailed("the lease of the QPU has already been given back")
        task = self._qpu.task(Payload(self._job, payload, shots, seed, self._slot, begun))
        self._tasks.append(task)
        try:
            return await task.run()
        finally:
            self._tasks.remove(task)

    @property
    def outlook(self) -> Outlook | None:
        """Where the last submitted payload stands; None if there is none."""
        return self._tasks[-1].outlook if self._tasks else None

    def release(self) -> None:
        """Give the slot back; a second call has no effect."""
        if self._slot is not None:
            slot, self._slot = self._slot, None
            slot.release()


class Qpu(ABC):
    """One device behind `slots` leases; subclasses say how it runs payloads."""

    service: str | None = None
    """The URL of the service that has the device, if one does."""

    def __init__(self, world: World, profile: Profile, slots: int = 1) -> None:
        self.world = world
        self.profile = profile
        self.slots = slots
        self.admission: Slots = FifoSlots(world, slots)
        """What grants the slots: the QPU's own queue, unless a cluster replaces it."""
        self.announced: dict[Hashable, float] = {}
        """Seconds of payloads that will come: decided on, and not handed in yet."""
        self._waits = Waits(world.now)
        self._busy_until = 0.0

    async def expected_wait(self, *, leased: bool = False) -> float:
        """Seconds until the device should begin with a new payload; inf if nobody can say.

        A job that is not `leased` waits for a slot first; how long, the last such waits say.
        """
        ahead = await self.backlog() + sum(self.announced.values())
        if leased or self.admission.has_free:
            return ahead
        return max(ahead, self._waits.expected(), self._busy_until - self.world.now())

    def waited_in_vain(self, seconds: float) -> None:
        """A job gave up waiting: for a while, others had better not try."""
        self._busy_until = self.world.now() + AGAIN * seconds

    async def backlog(self) -> float:
        """Seconds that the device should take for what it has; inf if it is away for long."""
        return 0.0

    @abstractmethod
    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Raise PayloadRefused, with a reason, if the device cannot take the payload.

        Ask before anything is queued for it: what runs on a lease is not checked again.
        """

    @abstractmethod
    def task(self, payload: Payload) -> QpuTask:
        """Submit a payload."""

    @abstractmethod
    async def describe(self) -> dict[str, Any]:
        """The device's `name`, `kind` and `properties`, as the service describes one."""

    @abstractmethod
    def renewed(self, slots: int) -> Qpu:
        """The same device with a queue and leases of its own."""

    def start(self) -> None:  # noqa: B027 - most need no start
        """Begin to start what takes a while; payloads wait for it, but their time does not pass."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what was started."""

    def check_admission(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise an error if it is clear already that no payload will be accepted."""

    async def lease(self, job: Job) -> Lease:
        """Wait for a slot."""
        slot = self.admission.take(job)
        if slot is None:
            with job.ledger.span("wait", "qpu", "a lease"), self._waits.standing():
                slot = await self.admission.acquire(job)
        return Lease(self, job, slot)

    def take(self, job: Job) -> Lease | None:
        """A slot at once, if one is free and no job waits for it."""
        slot = self.admission.take(job)
        return None if slot is None else Lease(self, job, slot)

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot has become free."""
        self.admission.watch(freed)
