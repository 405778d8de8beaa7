"""Clusters in virtual time: nodes with delays and faults, behind their own queue or a batch system.

Tasks are really called, immediately; only their pretended work takes time, on a clock that jumps.
Behind a batch system, hybrid jobs queue with other users' jobs, which are rows of a trace that the
scheduler of `qtide.backends.models` processes on its own. Before the clock jumps, the cluster asks
the scheduler whether a hybrid job gets nodes earlier; one scheduling pass handles all requests of
the same moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from qtide.backends.clusters.cluster import (
    Cluster,
    CoAllocatable,
    KindsCluster,
    Node,
    NodeRequest,
    Work,
)
from qtide.backends.clusters.fifo import FifoAllocation, FifoCluster, PendingRequest
from qtide.backends.clusters.kind import CHARGED, OF_A_KIND, ClusterKind, Setting, numbered
from qtide.backends.clusters.pretend import metered
from qtide.backends.clusters.virtual_tasks import logged
from qtide.backends.models.site_model import SUFFIX, Delays, Failures, Loss, SiteModel, read_site
from qtide.core.errors import NodeUnusable, PhaseError, UsageError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger, Span
from qtide.core.options import Option
from qtide.core.resources import PLAIN, BillingWeights, NodeKind
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import World

if TYPE_CHECKING:
    from qtide.backends.models.batch_queue import Interrupted, Started
    from qtide.backends.models.trace import Trace

__all__ = [
    "BatchCluster",
    "Delays",
    "Loss",
    "Simulated",
    "SimulatedCluster",
    "cluster_of",
    "site_model",
]


@dataclass(frozen=True)
class SimulatedOptions:
    """User options of the simulated cluster."""

    durations: Annotated[
        str,
        Option(
            "The earlier run that says how long tasks take that pretend nothing: its name, or "
            "none.  [default: the newest of the same program]",
            metavar="RUN",
        ),
    ] = ""
    cores: Annotated[int | None, Option("Cores of a node.  [default: the site's, or 64]")] = None
    gpus: Annotated[int | None, Option("GPUs of a node.  [default: the site's, or 0]")] = None
    kind: Annotated[list[str], OF_A_KIND] = field(default_factory=list)
    billing: Annotated[str, CHARGED] = ""


class Simulated(ClusterKind):
    """Runs the real strategy code in virtual time."""

    summary = "virtual time, as simulated, simulated:12, simulated:SITE.toml or SITE.toml:PARTITION"
    Options: type = SimulatedOptions

    def check(self, setting: Setting) -> None:
        """Reject impossible sizes."""
        BillingWeights.parse(setting.options(SimulatedOptions).billing)
        model = site_model(setting)
        setting.check_nodes(max((each.count for each in model.node_kinds), default=model.nodes))

    def world(self, time_scale: float) -> World:
        """Return a virtual world; the time scale does not apply."""
        return VirtualWorld()

    def described_site(self, setting: Setting) -> SiteModel | None:
        """The site that a file describes; None if the argument is only a number of nodes."""
        return site_model(setting) if is_site(setting.argument) else None

    async def open(self, world: World, setting: Setting) -> Cluster:
        """Open the cluster; all nodes exist from the start."""
        cluster = cluster_of(world, site_model(setting))
        if billing := setting.options(SimulatedOptions).billing:
            cluster.charge(BillingWeights.parse(billing))
        return cluster


def is_site(argument: str) -> bool:
    """Whether a cluster's argument names a site file, optionally with a partition."""
    return argument.endswith(SUFFIX) or f"{SUFFIX}:" in argument


def site_model(setting: Setting) -> SiteModel:
    """The site that a cluster's argument names: a site file, or a number of nodes, no delays."""
    if is_site(setting.argument):
        file, _, partition = setting.argument.partition(f"{SUFFIX}:")
        model = read_site(Path(file + SUFFIX if partition else file)).part(partition)
    else:
        model = SiteModel(nodes=numbered("simulated", setting.argument))
    options = setting.options(SimulatedOptions)
    if (options.cores or 1) < 1 or (options.gpus or 0) < 0:
        raise UsageError(
            "a node has at least one core (--cores), and no fewer than 0 GPUs (--gpus)"
        )
    if options.kind and setting.argument.isdecimal():
        raise UsageError("--kind says how many nodes there are: use --cluster simulated")
    return replace(
        model,
        kinds=tuple(options.kind) or model.kinds,
        cores=model.cores if options.cores is None else options.cores,
        gpus=model.gpus if options.gpus is None else options.gpus,
    )


def cluster_of(world: World, model: SiteModel) -> Cluster:
    """Create a site's cluster, with nodes of one or several kinds."""
    if not model.kinds:
        return _of_one_kind(world, model)
    if model.is_batch:
        raise UsageError("a simulated site with a batch system has nodes of one kind: drop kinds")
    return KindsCluster(
        [
            _of_one_kind(world, replace(model, nodes=each.count, kinds=()), each)
            for each in model.node_kinds
        ]
    )


def _of_one_kind(world: World, model: SiteModel, kind: NodeKind | None = None) -> SimulatedCluster:
    """Create a cluster with its own queue or with a batch system."""
    if model.is_batch and isinstance(world, VirtualWorld):
        return BatchCluster(world, model)
    cluster = SimulatedCluster(
        world,
        model.nodes,
        model.delays,
        model.losses,
        failures=model.failures,
        queue_wait=model.queue_wait,
        kind=kind or model.kind,
    )
    cluster.keeps_agents = model.keeps_agents
    return cluster


class SimulatedCluster(FifoCluster):
    """A cluster that calls tasks immediately; their pretended work passes on the virtual clock."""

    keeps_agents = False

    def __init__(
        self,
        world: World,
        nodes: int,
        delays: Delays = Delays(),  # noqa: B008 - frozen
        losses: Sequence[Loss] = (),
        seconds: Callable[[Work, float | None], float] = lambda _, pretended: pretended or 0.0,
        unusable: Callable[[int], bool] = lambda _: False,
        *,
        failures: Failures | None = None,
        queue_wait: Callable[[int], float] = lambda _: 0.0,
        kind: NodeKind = NodeKind(cores=64),  # noqa: B008 - frozen
    ) -> None:
        prefix = "n" if kind.name == PLAIN else kind.name
        names = [f"{prefix}{number}" for number in range(1, nodes + 1)]
        super().__init__(world, names, delays.grant, delays.withdraw)
        self.kind = kind
        self._delays = delays
        self._queue_wait = queue_wait
        """Seconds that a request waits in the queue, given the number of nodes held afterwards."""
        self._warm: WeakKeyDictionary[Ledger, set[str]] = WeakKeyDictionary()
        self.seconds = seconds
        """Returns a task's duration, given its pretended seconds (None if it pretended nothing)."""
        self._unusable = unusable
        self._starts = 0
        self._dead: dict[str, Loss] = {}
        self._turning: set[str] = set()
        """Nodes in turnaround: not held, but not available yet."""
        self._faults = [world.start(self._strike(loss)) for loss in losses]
        if failures is not None:
            self._faults.append(world.start(self._fail(failures.losses(names))))

    async def ready(self, node: Node, job: JobContext) -> None:
        """Wait until the node can take a task of the job."""
        await self.all_ready([node], job)

    async def all_ready(self, nodes: Sequence[Node], job: JobContext) -> None:
        """Wait for the longest start delay; raise NodeUnusable for starts set to fail."""
        first = self._starts + 1
        self._starts += len(nodes)
        delay = self._delays.start + max((self._cold(node, job) for node in nodes), default=0.0)
        await self.world.sleep(delay)  # even if 0: others may make requests at the same moment
        for number, node in enumerate(nodes, first):
            if self._unusable(number):
                raise NodeUnusable(f"the agent of node {node.name} did not start")

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Call the task; deliver its answer once its duration has passed."""
        result, error, pretended = _call(work, node.name)
        answered = partial(self._answered, node, ticket, result, error)
        self.world.alarm(self.seconds(work, pretended), answered)

    def interrupt(self, node: Node) -> None:
        """Do nothing: the task's answer comes too late and is rejected."""

    async def stopped(self, node: Node) -> bool:
        """Return immediately; False if the node is dead."""
        return node.name not in self._dead

    async def retire(self, held: Mapping[Node, Span]) -> None:
        """Take back all nodes at the same moment, after the release delay."""
        for node in held:
            node.lose("was given back")
        if self._delays.release:
            await self.world.sleep(self._delays.release)
        for each in held.items():
            await self.retire_one(*each)

    def take_back(self, name: str) -> None:
        """Add a node to the free nodes after its turnaround, in which nobody holds it."""
        back = super().take_back
        self.after_turnaround(name, lambda: back(name))

    def after_turnaround(self, name: str, back: Callable[[], object]) -> None:
        """Call `back` once the node can be granted again."""
        if not self._delays.turnaround:
            back()
            return

        def turned() -> None:
            self._turning.discard(name)
            back()

        self._turning.add(name)
        self.world.alarm(self._delays.turnaround, turned)

    def latency_of(self, request: NodeRequest) -> float:
        """Seconds until a request is first considered; requests to grow can have their own."""
        grows = request.least is not None and self._delays.reconfigure is not None
        return (self._delays.reconfigure or 0.0) if grows else self._delays.grant

    def expected_wait(self, nodes: int) -> float:
        """Expected wait in our own queue plus the wait behind other users' requests."""
        queue = self._queue_wait(len(self.granted) + nodes)
        return super().expected_wait(nodes) + queue if queue else super().expected_wait(nodes)

    async def queue_up(self, request: NodeRequest) -> FifoAllocation:
        """Wait behind other users' requests, which uses up patience; then queue as usual."""
        held = len(self.granted)
        wait, patience = self._queue_wait(held + request.nodes), request.patience
        if request.least is None or wait <= patience:
            if wait:
                await self.world.sleep(wait)
            return await super().queue_up(request)
        await self.world.sleep(patience)
        numbers = range(max(1, request.least), request.nodes)
        granted = [each for each in numbers if self._queue_wait(held + each) <= patience]
        if not granted and not request.least:
            return FifoAllocation(self, request.job, [])
        if not granted:
            await self.world.sleep(self._queue_wait(held + request.least) - patience)
        nodes = max(granted, default=request.least)
        return await super().queue_up(replace(request, nodes=nodes))

    def _cold(self, node: Node, job: JobContext) -> float:
        """Extra seconds for a job's first start on a node."""
        if not self._delays.cold:
            return 0.0
        warm = self._warm.setdefault(job.ledger, set())
        cold = node.name not in warm
        warm.add(node.name)
        return self._delays.cold if cold else 0.0

    async def occupy(self, stranger: JobContext, nodes: int, seconds: float) -> None:
        """Let another user's job queue for nodes and hold them, without recording it."""
        allocation = await self._stand(NodeRequest(stranger, nodes))
        try:
            await self.world.sleep(seconds)
        finally:
            await allocation.release()

    async def close(self) -> None:
        """Cancel the faults that are still pending."""
        await self.world.cancel(self._faults)

    def _answered(self, node: Node, ticket: int, result: Any, error: Exception | None) -> None:
        loss = self._dead.get(node.name)
        if loss is None or loss.answers:
            node.deliver(ticket, result, error)

    def _refuse_if_impossible(self, request: NodeRequest) -> None:
        """Count dead nodes that will recover: a request may wait for them."""
        back = sum(loss.back is not None for loss in self._dead.values())
        self.size += back
        try:
            super()._refuse_if_impossible(request)
        finally:
            self.size -= back

    async def _fail(self, losses: Iterator[Loss]) -> None:
        for loss in losses:
            await self.world.sleep(loss.at - self.world.now())
            self.world.start(self._strike(loss))

    async def _strike(self, loss: Loss) -> None:
        await self.world.sleep(loss.at - self.world.now())
        while loss.node in self._turning:
            await self.world.sleep(self._delays.turnaround)
        if loss.node in self._dead:
            return
        self._dead[loss.node] = loss
        self.lose(loss.node)
        if loss.back is not None:
            await self.world.sleep(loss.back)
            while loss.node in self.granted:  # its holder must release it first
                await self.world.sleep(1.0)
            del self._dead[loss.node]
            self.gain(loss.node)


def _call(work: Work, node: str) -> tuple[Any, Exception | None, float | None]:
    if work.task.mpi:
        text = f"the MPI task {work.task.name} cannot run in virtual time; use local or slurm"
        return None, PhaseError(text), None
    with metered() as pretended, logged(work.job.log, node, *work.place):
        try:
            result, failure = work.task.function(*work.task.args, **work.kwargs), None
        except Exception as error:
            result, failure = None, error
    return result, failure, sum(pretended) if pretended else None


class BatchCluster(SimulatedCluster):
    """A simulated cluster whose nodes are behind a batch system's queue."""

    def __init__(
        self,
        world: VirtualWorld,
        model: SiteModel,
        started: Started = lambda *_: None,
        trace: Iterable[Trace] | None = None,
        interrupted: Interrupted = lambda *_: None,
    ) -> None:
        # imported late: numpy and numba take a second to load, and most runs have no batch system
        from qtide.backends.models.batch_queue import BatchQueue

        failures = model.failures
        super().__init__(
            world, model.nodes, model.delays, model.losses, failures=failures, kind=model.kind
        )
        trace = background(model) if trace is None else trace
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


def background(model: SiteModel) -> Iterable[Trace]:
    """The jobs of other users that fit on the cluster."""
    if model.background.trace is not None:
        from qtide.backends.models.trace import read_swf  # imported late, as it loads numpy

        trace = read_swf(Path(model.background.trace)).trace
        return trace.fitting(model.nodes).chunks()
    if model.background.generate is not None:
        return (chunk.fitting(model.nodes) for chunk in model.background.generate.chunks())
    return ()
