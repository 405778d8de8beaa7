"""A QPU: one device that serves one job at a time, or N virtual QPUs that share its queue.

A lease holds a slot: the right to submit payloads, granted by the QPU itself or by a cluster. It
knows its payload's position in the queue and the expected start and end.
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
"""After a job waited in vain for a slot, none is expected for this many times that wait."""


class Qpu(ABC):
    """One device behind `slots` leases; subclasses define how it runs payloads."""

    service: str | None = None
    """URL of the service that owns the device, if any."""

    def __init__(self, world: World, profile: Profile, slots: int = 1) -> None:
        self.world = world
        self.profile = profile
        self.slots = slots
        self.admission: Slots = FifoSlots(world, slots)
        """Grants the slots: the QPU's own queue, unless a cluster replaces it."""
        self.announced: dict[Hashable, float] = {}
        """Seconds of payloads that are planned but not submitted yet."""
        self._waits = Waits(world.now)
        self._busy_until = 0.0

    async def expected_wait(self, *, leased: bool = False) -> float:
        """Expected seconds until the device starts a new payload; inf if unknown.

        A job that is not `leased` first waits for a slot; recent waits predict for how long.
        """
        ahead = await self.backlog() + sum(self.announced.values())
        if leased or self.admission.has_free:
            return ahead
        return max(ahead, self._waits.expected(), self._busy_until - self.world.now())

    def waited_in_vain(self, seconds: float) -> None:
        """Record that a job gave up waiting, which raises the expected wait for a while."""
        self._busy_until = self.world.now() + AGAIN * seconds

    async def backlog(self) -> float:
        """Expected seconds for the device's queued work; inf if it is away for long."""
        return 0.0

    @abstractmethod
    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Raise PayloadRefused, with a reason, if the device cannot take the payload.

        Call this before queueing anything for the payload; a lease does not check it again.
        """

    @abstractmethod
    def task(self, payload: Payload) -> QpuTask:
        """Submit a payload."""

    @abstractmethod
    async def describe(self) -> dict[str, Any]:
        """The device's `name`, `kind` and `properties`, in the service's format."""

    @abstractmethod
    def renewed(self, slots: int) -> Qpu:
        """The same device with its own new queue and leases."""

    def start(self) -> None:  # noqa: B027 - most need no start
        """Start slow parts early; payloads wait for them, but that is not part of their time."""

    async def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Stop what was started."""

    def check_admission(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise an error if it is already clear that no payload will be accepted."""

    async def lease(self, job: JobContext) -> Lease:
        """Wait for a slot."""
        slot = self.admission.take(job)
        if slot is None:
            with job.ledger.span("wait", "qpu", "a lease"), self._waits.standing():
                slot = await self.admission.acquire(job)
        return Lease(self, job, slot)

    def take(self, job: JobContext) -> Lease | None:
        """Take a slot now; None unless one is free and no job waits for it."""
        slot = self.admission.take(job)
        return None if slot is None else Lease(self, job, slot)

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever a slot becomes free."""
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
        """Run a payload and return the device's answer; call `begun` when the device starts it."""
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
        """Queue position and expected times of the last submitted payload; None without one."""
        return self._tasks[-1].outlook if self._tasks else None

    def release(self) -> None:
        """Release the slot; a second call has no effect."""
        if self._slot is not None:
            slot, self._slot = self._slot, None
            slot.release()


class QpuTask(ABC):
    """A submitted payload."""

    @property
    @abstractmethod
    def outlook(self) -> Outlook:
        """The payload's queue position and expected times."""

    @abstractmethod
    async def run(self) -> Any:
        """Wait for the device and return its answer."""


@dataclass(frozen=True)
class Payload:
    """A payload with the terms of its submission."""

    job: JobContext
    content: Any
    shots: int | None
    seed: int
    slot: Slot | None = None
    """The slot that gives the right to submit it."""
    begun: Callable[[], None] = lambda: None
    """Called when the device starts the payload."""


class QpuFailed(PhaseError):  # noqa: N818 - named after the event
    """The device failed on a payload."""


class QpuBusy(PhaseError):  # noqa: N818 - named after the event
    """The device did not start a payload in time."""


class Slot:
    """One job's right to submit payloads, until it is released."""

    token: str | None = None
    """Proof for a service that this slot is held, if the grantor can provide one."""
    refusal: str | None = None
    """Why there is no token, if one was requested."""

    def __init__(
        self, job: JobContext, number: int, free: Callable[[int], None], label: str = ""
    ) -> None:
        self.number = number
        self._free = free
        self._held = job.ledger.span("held", f"vqpu/{number}", label)

    async def ready(self) -> None:
        """Wait until payloads may be submitted: no time, unless the slot was taken away."""

    def release(self) -> None:
        """Release the slot."""
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
        """Take a slot now; None if the job has to wait."""

    @abstractmethod
    async def acquire(self, job: JobContext) -> Slot:
        """Wait for a slot."""

    async def returned(self, job: JobContext) -> None:
        """Wait until released slots have been returned; by default they return immediately."""
        return

    @abstractmethod
    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever `take` may succeed again."""


class FifoSlots(Slots):
    """Grants slots from a queue in this process."""

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
        """Take a slot now; None unless one is free and no job waits for it."""
        if not self.has_free:
            return None
        return Slot(job, self._numbers.pop(0), self._free)

    async def acquire(self, job: JobContext) -> Slot:
        """Wait in the queue for a slot."""
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
        """Give the slot to the next job in the queue."""
        if self._waiting:
            job, answer = self._waiting.popleft()
            answer.set_result(Slot(job, number, self._free))
            return
        self._numbers = sorted([*self._numbers, number])
        for freed in self._watchers:
            freed()


class MeteredQpu(Qpu):
    """A QPU that reports to its meter which jobs wait for a lease."""

    meter: IdleMeter

    async def lease(self, job: JobContext) -> Lease:
        """Wait for a slot."""
        self.meter.wanted(job)
        try:
            return await super().lease(job)
        finally:
            self.meter.satisfied(job)

    def take(self, job: JobContext) -> Lease | None:
        """Take a slot now; if none is free, count the job as waiting and return None."""
        lease = super().take(job)
        if lease is None:
            self.meter.wanted(job)
        else:
            self.meter.satisfied(job)
        return lease

    def forget(self, job: JobContext) -> None:
        """Stop counting a finished job as waiting."""
        self.meter.satisfied(job)


class IdleMeter:
    """Measures how long a QPU idles while a job waits for it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanting: dict[JobContext, None] = {}
        self._working = 0
        self._since = 0.0
        self._idle = 0.0

    def idle(self) -> float:
        """Seconds so far in which the QPU idled while a job waited for it."""
        now = self._world.now()
        if self._wanting and not self._working:
            self._idle += now - self._since
        self._since = now
        return self._idle

    def wanted(self, job: JobContext) -> None:
        """Record that a job waits for a lease."""
        self.idle()
        self._wanting[job] = None

    def satisfied(self, job: JobContext) -> None:
        """Record that the job no longer waits."""
        self.idle()
        self._wanting.pop(job, None)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the device as busy within this context."""
        self.idle()
        self._working += 1
        try:
            yield
        finally:
            self.idle()
            self._working -= 1


def check(device: Device, payload: Any, shots: int | None) -> None:
    """Raise PayloadRefused, with a remedy if known, if the device cannot take the payload."""
    try:
        with needed_packages(device):
            device.check(payload)
        if shots is not None:
            device.check_shots(shots)
        if not device.light:  # a worker needs it encoded; the same rule applies in virtual time
            encode(payload)
    except PayloadRefused as error:
        remedy, name = "", format_of(payload)
        if name is not None and name not in device.properties()["formats"]:
            remedy = takers(name)
        elif name is not None and is_circuits(name):
            remedy = "; a parameter `target` of the program says what fits"
        raise PayloadRefused(f"{error}{remedy}") from None
