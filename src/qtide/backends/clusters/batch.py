"""A batch system in virtual time: hybrid jobs queue with the jobs of everybody else.

The others' jobs are rows of a trace, which the scheduler of `qtide.models` goes through by itself;
hybrid jobs run the strategies' own code. Before the clock moves, the scheduler is asked whether a
hybrid job gets nodes before then. All requests of one moment are in the same pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

from qtide.backends.clusters.cluster import CoAllocatable, NodeRequest
from qtide.backends.clusters.fifo import FifoAllocation, PendingRequest
from qtide.backends.clusters.simulated import SimulatedCluster
from qtide.backends.models.batch_queue import BatchQueue, Interrupted, Started
from qtide.backends.models.site_model import SiteModel
from qtide.backends.models.trace import Trace, read_swf
from qtide.core.world.virtual import VirtualWorld


class BatchCluster(SimulatedCluster):
    """The simulated cluster's nodes behind the queue of a batch system."""

    def __init__(
        self,
        world: VirtualWorld,
        model: SiteModel,
        started: Started = lambda *_: None,
        trace: Iterable[Trace] | None = None,
        interrupted: Interrupted = lambda *_: None,
    ) -> None:
        failures = model.failures
        super().__init__(world, model.nodes, model.delays, model.losses, failures=failures)
        trace = background(model) if trace is None else trace
        backfill = model.scheduler == "easy"
        self.batch = BatchQueue(
            model.nodes, trace, started, backfill=backfill, interrupted=interrupted
        )
        self._chance = Random(0 if failures is None else failures.seed)
        """Whether a node that fails is free, or one of a background job."""
        self._limit = model.limit
        self._asking: dict[int, PendingRequest] = {}
        self._slots: dict[str, int] = {}
        """By which slot each granted node is held."""
        self._granted: dict[int, float] = {}
        self._impatient: list[PendingRequest] = []
        self._held: dict[CoAllocatable, deque[int]] = {}
        """Who waits for a QPU as well, by the QPU, in the order in which they came."""
        world.beside(self)

    @property
    def asks(self) -> bool:
        """Whether a hybrid job waits for nodes."""
        return bool(self._asking)

    @property
    def upcoming(self) -> float:
        """When something happens next; now, if somebody's patience is over."""
        return self.world.now() if self._impatient else self.batch.upcoming()

    def until(self, moment: float) -> float | None:
        """When the next hybrid job is answered, if that is at `moment` or before."""
        if moment < self.batch.quiet_until and not self._impatient:
            return None
        now = self.world.now()
        self._granted = self.batch.advance(now if self._impatient else moment)
        if not self._granted and self._impatient:
            return now
        return next(iter(self._granted.values()), None)

    def deliver(self) -> None:
        """Hand over the nodes; who cannot have the QPU as well lets others pass."""
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
        """None while nobody waits and there are enough free nodes; otherwise as it was lately."""
        if not self.batch.queued and self.batch.free >= nodes:
            return self._latency
        return max(self._latency, self._waits.expected())

    async def queue_up(self, request: NodeRequest) -> FifoAllocation:
        """Wait in the batch system's queue."""
        if request.least is not None:
            request = replace(request)  # it may settle for fewer nodes
        pending = PendingRequest(request, self.world.future())
        held = self._held.get(request.co_allocate) if request.co_allocate else None
        slot = self.batch.ask(request.nodes, self._limit, self.world.now(), held=bool(held))
        self._asking[slot] = pending
        if held:
            held.append(slot)
        alarm = None
        if request.least is not None:
            alarm = self.world.alarm(request.patience, lambda: self._settle_for_less(pending))
        return await self._grant_of(pending, alarm)

    def take_back(self, name: str) -> None:
        """A node of a hybrid job is free for everybody, after the turnaround."""
        slot = self._slots.pop(name, None)
        if slot is None:  # it was lost, and is there again
            self.batch.resize(1, self.world.now())
            self._free.append(name)
        else:
            self.after_turnaround(name, lambda: self._give_back(slot, name))

    def lose(self, name: str) -> None:
        """The node is dead: a hybrid job's, a free one, or one of a background job."""
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
        if pending.answer.done():  # whoever asked was cancelled at this very moment
            self.batch.give_back(slot, nodes, self.world.now())
            return
        self._answer(pending, nodes, taken)
        for node in pending.answer.result().nodes:
            self._slots[node.name] = slot

    def _serve(self) -> None:
        """Nothing is granted before the moment is over."""

    def _watch(self, wanted: CoAllocatable | None) -> None:
        if wanted is not None and wanted not in self._watched:
            self._watched.add(wanted)
            wanted.watch(lambda: self._look_again(wanted))

    def _look_again(self, wanted: CoAllocatable) -> None:
        """A QPU may have become free: the first one that waits for it is looked at again."""
        if held := self._held.get(wanted):
            self.batch.look_again(held.popleft(), self.world.now())

    def _settle_for_less(self, pending: PendingRequest) -> None:
        """When its patience is over, a request takes what is free, if the scheduler lets it."""
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
        """Those who need no node end with nothing."""
        impatient, self._impatient = self._impatient, []
        for pending in impatient:
            if self._withdrawn(pending):
                pending.answer.set_result(FifoAllocation(self, pending.request.job, []))

    def _withdrawn(self, pending: PendingRequest) -> bool:
        slot = self._slot_of(pending)
        if slot is not None:
            del self._asking[slot]
            self.batch.withdraw(slot, self.world.now())
            self._hold_no_longer(slot, pending.request.co_allocate)
        return slot is not None

    def _hold_no_longer(self, slot: int, wanted: CoAllocatable | None) -> None:
        """Who withdraws passes the QPU that may be free for it on to the next one."""
        held = self._held.get(wanted) if wanted else None
        if held and slot in held:
            held.remove(slot)
        elif wanted is not None:
            self._look_again(wanted)

    def _slot_of(self, pending: PendingRequest) -> int | None:
        return next((slot for slot, each in self._asking.items() if each is pending), None)


def background(model: SiteModel) -> Iterable[Trace]:
    """The jobs of other users, as far as they fit on the cluster."""
    if model.background.trace is not None:
        trace = read_swf(Path(model.background.trace)).trace
        return trace.fitting(model.nodes).chunks()
    if model.background.generate is not None:
        return (chunk.fitting(model.nodes) for chunk in model.background.generate.chunks())
    return ()
