"""A cluster in virtual time behind a batch system, whose queue hybrid jobs share with other users.

The others' jobs are rows of a trace that the scheduler of `qtide.backends.models` processes on its
own. Before the clock jumps, the cluster asks the scheduler whether a hybrid job gets nodes earlier;
one scheduling pass handles all requests of the same moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from math import isinf
from random import Random

from qtide.backends.clusters.cluster import Cluster, CoAllocatable, NodeRequest
from qtide.backends.clusters.fifo import FifoAllocation, PendingRequest
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.models.batch_queue import BatchQueue, Interrupted, Started
from qtide.backends.models.site_model import SiteModel
from qtide.backends.models.trace import Trace
from qtide.core.job import JobContext
from qtide.core.resources import NodeKind
from qtide.core.world.virtual import VirtualWorld


class BatchCluster(SimulatedCluster):
    """A simulated cluster whose nodes are behind a batch system's queue."""

    def __init__(
        self,
        world: VirtualWorld,
        model: SiteModel,
        started: Started = lambda *_: None,
        trace: Iterable[Trace] | None = None,
        interrupted: Interrupted = lambda *_: None,
        kind: NodeKind | None = None,
    ) -> None:
        failures, kind = model.failures, kind or model.kind
        super().__init__(
            world, model.nodes, model.delays, model.losses, failures=failures, kind=kind
        )
        trace = model.background.chunks(model.nodes, model.cores) if trace is None else trace
        backfill = model.scheduler == "easy"
        self.batch = BatchQueue(
            model.nodes, trace, started, backfill=backfill, interrupted=interrupted
        )
        self._chance = Random(0 if failures is None else failures.seed)
        """Decides whether a failing node is free or belongs to a background job."""
        self._limit = model.limit
        self._asking: dict[int, PendingRequest] = {}
        self._slots: dict[str, int] = {}
        """The slot that holds each granted node."""
        self._granted: dict[int, float] = {}
        self._impatient: list[PendingRequest] = []
        self._held: dict[CoAllocatable, deque[int]] = {}
        """For each QPU, the slots of requests that also wait for it, in order of arrival."""
        world.beside(self)

    @property
    def asks(self) -> bool:
        """Whether a hybrid job waits for nodes."""
        return bool(self._asking)

    @property
    def upcoming(self) -> float:
        """Time of the next event; now if a request has run out of patience."""
        return self.world.now() if self._impatient else self.batch.upcoming()

    def until(self, moment: float) -> float | None:
        """Time of the next answer to a hybrid job, if it comes no later than `moment`."""
        if moment < self.batch.quiet_until and not self._impatient:
            return None
        now = self.world.now()
        self._granted = self.batch.advance(now if self._impatient else moment)
        if not self._granted and self._impatient:
            return now
        return next(iter(self._granted.values()), None)

    def deliver(self) -> None:
        """Hand over granted nodes; a request whose QPU is not available lets others pass."""
        lacking = []
        for slot in self._granted:
            pending = self._asking[slot]
            wanted = pending.request.co_allocate
            taken = wanted.take(pending.request.job) if wanted else None
            if wanted is not None and taken is None:
                lacking.append((slot, wanted))
            else:
                del self._asking[slot]
                self._hand_over(slot, pending, taken)
        for slot, wanted in reversed(lacking):
            self.batch.hold(slot, self.world.now())
            self._held.setdefault(wanted, deque()).appendleft(slot)
        if not self._granted:
            self._end_impatient()

    def expected_wait(self, nodes: int) -> float:
        """Only the latency if nobody waits and enough nodes are free, otherwise the forecast."""
        if not self.batch.queued and self.batch.free >= nodes:
            return self._latency
        return max(self._latency, self._waits.expected())

    def others_waiting(self, job: JobContext) -> int:
        """Number of requests in the batch system's queue that are not this job's."""
        asking = [each.request for each in self._asking.values()]
        return self.batch.queued - sum(each.job is job or not each.needed for each in asking)

    async def queue_up(self, request: NodeRequest) -> FifoAllocation:
        """Wait in the batch system's queue."""
        if request.least is not None:
            request = replace(request)  # a copy, as it may settle for fewer nodes
        pending = PendingRequest(request, self.world.future())
        held = self._held.get(request.co_allocate) if request.co_allocate else None
        slot = self.batch.ask(request.nodes, self._limit, self.world.now(), held=bool(held))
        self._asking[slot] = pending
        if held:
            held.append(slot)
        alarm = None
        if request.least is not None:
            alarm = self.world.alarm(request.patience, lambda: self._accept_fewer(pending))
        return await self._grant_of(pending, alarm)

    def take_back(self, name: str) -> None:
        """Return a hybrid job's node to the batch system after the turnaround."""
        slot = self._slots.pop(name, None)
        if slot is None:  # the node was lost and has recovered
            self.batch.resize(1, self.world.now())
            self._free.append(name)
        else:
            self.after_turnaround(name, lambda: self._give_back(slot, name))

    def lose(self, name: str) -> None:
        """Remove a dead node: one of a hybrid job, a free one, or one of a background job."""
        now, unnamed = self.world.now(), len(self._free)
        super().lose(name)
        if name in self._slots:
            return
        if self._chance.random() * unnamed >= self.batch.free:
            self.batch.interrupt(self._chance.random(), now)
        self.batch.resize(-1, now)

    def _give_back(self, slot: int, name: str) -> None:
        self._free.append(name)
        self.batch.give_back(slot, 1, self.world.now())

    def _hand_over(self, slot: int, pending: PendingRequest, taken: object) -> None:
        nodes = pending.request.nodes
        if pending.answer.done():  # the requester was cancelled at this very moment
            self.batch.give_back(slot, nodes, self.world.now())
            return
        self._answer(pending, nodes, taken)
        for node in pending.answer.result().nodes:
            self._slots[node.name] = slot

    def _serve(self) -> None:
        """Do nothing: the pass at the end of the moment grants nodes."""

    def _watch(self, wanted: CoAllocatable | None) -> None:
        if wanted is not None and wanted not in self._watched:
            self._watched.add(wanted)
            wanted.watch(lambda: self._look_again(wanted))

    def _look_again(self, wanted: CoAllocatable) -> None:
        """Reconsider the first request that waits for a QPU that may be free now."""
        if held := self._held.get(wanted):
            self.batch.look_again(held.popleft(), self.world.now())

    def _accept_fewer(self, pending: PendingRequest) -> None:
        """Let an impatient request take the nodes that are free, if the scheduler allows it."""
        slot = self._slot_of(pending)
        if slot is None:
            return
        nodes = min(self.batch.free, pending.request.nodes)
        if nodes >= max(1, pending.request.least or 0):
            pending.request.nodes = nodes
            self.batch.look_again(slot, self.world.now(), nodes)
        if pending.request.least == 0:
            self._impatient.append(pending)

    def _end_impatient(self) -> None:
        """Answer impatient requests that need no nodes with an empty allocation."""
        impatient, self._impatient = self._impatient, []
        for pending in impatient:
            if self._withdrawn(pending):
                pending.answer.set_result(FifoAllocation(self, pending.request.job, []))

    def _withdrawn(self, pending: PendingRequest) -> bool:
        slot = self._slot_of(pending)
        if slot is not None:
            del self._asking[slot]
            self.batch.withdraw(slot, self.world.now())
            self._stop_holding(slot, pending.request.co_allocate)
        return slot is not None

    def _stop_holding(self, slot: int, wanted: CoAllocatable | None) -> None:
        """Drop a withdrawn request; if it was not held, its QPU may be free for the next one."""
        held = self._held.get(wanted) if wanted else None
        if held and slot in held:
            held.remove(slot)
        elif wanted is not None:
            self._look_again(wanted)

    def _slot_of(self, pending: PendingRequest) -> int | None:
        return next((slot for slot, each in self._asking.items() if each is pending), None)


class PartitionSync:
    """Keeps the batch systems of several partitions or kinds in step in virtual time."""

    def __init__(self, world: VirtualWorld, clusters: Iterable[Cluster]) -> None:
        self._clusters = [each for each in clusters if isinstance(each, BatchCluster)]
        if len(self._clusters) > 1:
            world.beside(self)
        self._granting: BatchCluster | None = None

    def until(self, moment: float) -> float | None:
        """Return the time of the next grant to a hybrid job, or None if it is after `moment`."""
        granted = self._first_grant(moment)
        bound = moment if granted is None else granted
        for cluster in self._clusters:
            if not cluster.asks:
                cluster.until(bound)
        return granted

    def deliver(self) -> None:
        """Hand over the nodes of that grant."""
        assert self._granting is not None
        self._granting.deliver()

    def _first_grant(self, moment: float) -> float | None:
        """Advance the partitions in which a hybrid job waits, until the first grant."""
        asking = [cluster for cluster in self._clusters if cluster.asks]
        while asking:
            order = sorted((cluster.upcoming, n) for n, cluster in enumerate(asking))
            if order[0][0] > moment or isinf(order[0][0]):
                break
            self._granting = asking[order[0][1]]
            limit = min(moment, order[1][0]) if len(order) > 1 else moment
            granted = self._granting.until(limit)
            if granted is not None:
                return granted
        return None
