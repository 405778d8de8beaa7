"""Several drivers on one cluster: they share its nodes and its QPU slots, not what they know."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from qtide.backends.clusters.cluster import Cluster, KindsCluster, NodeRequest
from qtide.backends.clusters.fifo import FifoAllocation
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.backends.leases.qpu import FifoSlots, Lease, Qpu, Slot, Slots
from qtide.core.forecasts import Waits
from qtide.core.job import JobContext
from qtide.strategies.site import Site
from tests.bench import INSTANT


class View(Cluster):
    """What one driver sees: its own requests, and how long they waited.

    With one `queue` for both, a request for a lease waits behind requests for nodes, as a job of
    Slurm's does; otherwise slots have a queue of their own.
    """

    def __init__(self, shared: SimulatedCluster, slots: FifoSlots, *, queue: bool) -> None:
        self._shared = shared
        self.kind = shared.kind
        self._slots = slots
        self._queue = queue
        self._waits = Waits(shared.world.now)

    @property
    def size(self) -> int:  # type: ignore[override]  # the nodes that are there now
        return self._shared.size

    async def grant(self, request: NodeRequest) -> FifoAllocation:
        if self._queue and isinstance(request.co_allocate, Qpu):
            request = replace(request, co_allocate=Seat(request.co_allocate, self._slots))
        with self._waits.standing():
            return await self._shared.grant(request)

    def expected_wait(self, nodes: int) -> float:
        return self._waits.expected()

    def waits_seen(self) -> tuple[float, ...]:
        return self._waits.seen()

    def forget(self) -> None:
        self._waits.forget()

    def admit(self, qpu: Qpu) -> None:
        qpu.admission = Queued(self._shared, self._slots) if self._queue else self._slots

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Seat:
    """A lease that is granted by the queue of the cluster."""

    qpu: Qpu
    slots: FifoSlots

    def take(self, job: JobContext) -> Lease | None:
        slot = self.slots.take(job)
        return None if slot is None else Lease(self.qpu, job, slot)

    def watch(self, freed: Callable[[], None]) -> None:
        self.slots.watch(freed)


@dataclass(frozen=True)
class BareSlot:
    """The same without the lease around it."""

    slots: FifoSlots

    def take(self, job: JobContext) -> Slot | None:
        return self.slots.take(job)

    def watch(self, freed: Callable[[], None]) -> None:
        self.slots.watch(freed)


class Queued(Slots):
    """Admission by requests without nodes in the cluster's one queue."""

    def __init__(self, shared: SimulatedCluster, slots: FifoSlots) -> None:
        self._shared = shared
        self._wanted = BareSlot(slots)

    def take(self, job: JobContext) -> Slot | None:
        return None

    async def acquire(self, job: JobContext) -> Slot:
        allocation = await self._shared.grant(NodeRequest(job, 0, co_allocate=self._wanted))
        slot: Slot = allocation.take_co_allocated()
        return slot

    def watch(self, freed: Callable[[], None]) -> None:
        pass


def sites(
    clusters: Sequence[SimulatedCluster], drivers: int, slots: int, *, queue: bool
) -> list[Site]:
    """One for each driver, on the same nodes, of one kind or several, behind the same slots."""
    world = clusters[0].world
    shared = FifoSlots(world, slots)
    views = [[View(each, shared, queue=queue) for each in clusters] for _ in range(drivers)]
    return [
        Site(
            world,
            KindsCluster(kinds) if len(kinds) > 1 else kinds[0],
            EmulatedQpu(world, Annealer(), INSTANT, slots),
        )
        for kinds in views
    ]
