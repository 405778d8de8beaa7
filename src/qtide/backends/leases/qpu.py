"""A QPU: one device that serves one job at a time, or N virtual QPUs that share its queue.

A lease is a slot: the right to submit payloads, granted by the QPU itself or by a cluster. It knows
where its payload stands and when that is expected to start and to end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from qtide.backends.devices.device import Device, needed_packages, takers
from qtide.backends.devices.profile import Profile
from qtide.backends.payloads.payload import PayloadRefused, encode, format_of, is_circuits
from qtide.core.errors import PhaseError
from qtide.core.forecasts import Outlook, Waits
from qtide.core.job import JobContext
from qtide.core.world.world import Future, World

AGAIN = 10.0
"""After a job waited in vain for a slot, none is expected for this many times as long."""


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

    async def lease(self, job: JobContext) -> Lease:
        """Wait for a slot."""
        slot = self.admission.take(job)
        if slot is None:
            with job.ledger.span("wait", "qpu", "a lease"), self._waits.standing():
                slot = await self.admission.acquire(job)
        return Lease(self, job, slot)

    def take(self, job: JobContext) -> Lease | None:
        """A slot at once, if one is free and no job waits for it."""
        slot = self.admission.take(job)
        return None if slot is None else Lease(self, job, slot)

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot has become free."""
        self.admission.watch(freed)


class Lease:
    """A slot of a QPU, held by one job."""

    def __init__(self, qpu: Qpu, job: JobContext, slot: Slot) -> None:
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

    job: JobContext
    content: Any
    shots: int | None
    seed: int
    slot: Slot | None = None
    """By which right."""
    begun: Callable[[], None] = lambda: None
    """Called when the device begins with it."""


class QpuFailed(PhaseError):  # noqa: N818 - what happened
    """The device failed on a payload."""


class QpuBusy(PhaseError):  # noqa: N818 - what happened
    """The device did not begin with a payload in time."""


class Slot:
    """The right of one job to submit payloads, until it is given back."""

    token: str | None = None
    """What proves to a service that this slot is held, if whoever granted it can prove that."""
    refusal: str | None = None
    """Why there is no token, if one was asked for."""

    def __init__(
        self, job: JobContext, number: int, free: Callable[[int], None], label: str = ""
    ) -> None:
        self.number = number
        self._free = free
        self._held = job.ledger.span("held", f"vqpu/{number}", label)

    async def ready(self) -> None:
        """Return once payloads may be submitted: at once, unless the slot was taken away."""

    def release(self) -> None:
        """Give it back."""
        self._held.close()
        self._free(self.number)


class Slots(ABC):
    """Grants slots."""

    @property
    def has_free(self) -> bool:
        """Whether `take` would succeed."""
        return False

    @abstractmethod
    def take(self, job: JobContext) -> Slot | None:
        """A slot at once; None if the job has to wait."""

    @abstractmethod
    async def acquire(self, job: JobContext) -> Slot:
        """Wait for a slot."""

    async def returned(self, job: JobContext) -> None:
        """Wait until what the job has given back has arrived: here, it arrives at once."""
        return

    @abstractmethod
    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever `take` may succeed again."""


class FifoSlots(Slots):
    """Slots that live in this process."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._numbers = list(range(number))
        self._waiting: deque[tuple[JobContext, Future[Slot]]] = deque()
        self._watchers: list[Callable[[], None]] = []

    @property
    def has_free(self) -> bool:
        """Whether a slot is free and no job waits for it."""
        return bool(self._numbers) and not self._waiting

    def take(self, job: JobContext) -> Slot | None:
        """A slot at once, if one is free."""
        if not self.has_free:
            return None
        return Slot(job, self._numbers.pop(0), self._free)

    async def acquire(self, job: JobContext) -> Slot:
        """Wait in the queue."""
        answer: Future[Slot] = self._world.future()
        self._waiting.append((job, answer))
        try:
            return await answer
        except CancelledError:
            if answer.done() and not answer.cancelled():
                answer.result().release()
            else:
                self._waiting.remove((job, answer))
            raise

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot is free and no job waits for it."""
        self._watchers.append(freed)

    def _free(self, number: int) -> None:
        """Give the slot to the next in the queue."""
        if self._waiting:
            job, answer = self._waiting.popleft()
            answer.set_result(Slot(job, number, self._free))
            return
        self._numbers = sorted([*self._numbers, number])
        for freed in self._watchers:
            freed()


class MeteredQpu(Qpu):
    """A QPU that tells its meter who waits for a lease."""

    meter: IdleMeter

    async def lease(self, job: JobContext) -> Lease:
        """Wait for a slot."""
        self.meter.wanted(job)
        try:
            return await super().lease(job)
        finally:
            self.meter.satisfied(job)

    def take(self, job: JobContext) -> Lease | None:
        """A slot at once, if one is free; otherwise the job, or its cluster for it, waits."""
        lease = super().take(job)
        if lease is None:
            self.meter.wanted(job)
        else:
            self.meter.satisfied(job)
        return lease

    def forget(self, job: JobContext) -> None:
        """The job is over."""
        self.meter.satisfied(job)


class IdleMeter:
    """Measures for how long a QPU idled while a job wanted it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanting: dict[JobContext, None] = {}
        self._working = 0
        self._since = 0.0
        self._idle = 0.0

    def idle(self) -> float:
        """Seconds up to now in which it idled while a job wanted it."""
        now = self._world.now()
        if self._wanting and not self._working:
            self._idle += now - self._since
        self._since = now
        return self._idle

    def wanted(self, job: JobContext) -> None:
        """A job has to wait for a lease."""
        self.idle()
        self._wanting[job] = None

    def satisfied(self, job: JobContext) -> None:
        """It waits no longer."""
        self.idle()
        self._wanting.pop(job, None)

    @contextmanager
    def working(self) -> Iterator[None]:
        """The device is occupied inside of this block."""
        self.idle()
        self._working += 1
        try:
            yield
        finally:
            self.idle()
            self._working -= 1


def check(device: Device, payload: Any, shots: int | None) -> None:
    """Raise PayloadRefused if the device cannot take the payload, with what to do about it."""
    try:
        with needed_packages(device):
            device.check(payload)
        if shots is not None:
            device.check_shots(shots)
        if not device.light:  # it is sent to a worker; in virtual time the same rules apply
            encode(payload)
    except PayloadRefused as error:
        remedy, name = "", format_of(payload)
        if name is not None and name not in device.properties()["formats"]:
            remedy = takers(name)
        elif name is not None and is_circuits(name):
            remedy = "; a parameter `target` of the program says what fits"
        raise PayloadRefused(f"{error}{remedy}") from None
