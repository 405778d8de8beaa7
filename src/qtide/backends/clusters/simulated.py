"""Clusters in virtual time: nodes with delays and faults, behind a queue of their own.

Tasks are really called, immediately; only their pretended work takes time, on a clock that jumps.
A site with a batch system has a `BatchCluster` (`batch_cluster.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from qtide.backends.clusters.cluster import (
    Cluster,
    KindsCluster,
    Message,
    Node,
    NodeRequest,
    Work,
)
from qtide.backends.clusters.fifo import FifoAllocation, FifoCluster
from qtide.backends.clusters.kind import CHARGED, OF_A_KIND, ClusterKind, Setting, numbered
from qtide.backends.clusters.pretend import metered
from qtide.backends.clusters.virtual_malleable import VirtualMalleableTasks
from qtide.backends.clusters.virtual_tasks import logged
from qtide.backends.models.failures import Failures, Loss
from qtide.backends.models.site_model import SUFFIX, Delays, SiteModel, read_site
from qtide.core.errors import NodeUnusable, PhaseError, UsageError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger, Span
from qtide.core.options import Option
from qtide.core.resources import PLAIN, BillingWeights, NodeKind, check_size
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import Future, World

ROUNDING = 1e-9
"""Seconds that do not count."""


def _wake(waiting: Future[None]) -> None:
    """Let a request that waits look again; two reasons may come at the same moment."""
    if not waiting.done():
        waiting.set_result(None)


__all__ = [
    "Delays",
    "Loss",
    "Simulated",
    "SimulatedCluster",
    "cluster_of",
    "cluster_of_kind",
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
        setting.check_nodes(self.size(setting))

    def size(self, setting: Setting) -> int:
        """As many as the argument, the site file or the largest kind says."""
        return max(kind.count for kind, _ in site_model(setting).kind_parts())

    def world(self, time_scale: float) -> World:
        """Return a virtual world; the time scale does not apply."""
        return VirtualWorld()

    def described_site(self, setting: Setting) -> SiteModel | None:
        """The site that a file describes; None if the argument is only a number of nodes."""
        return site_model(setting) if is_site(setting.argument) else None

    async def open(self, world: World, setting: Setting) -> Cluster:
        """Open the cluster; all nodes exist from the start."""
        model = site_model(setting)
        cluster = cluster_of(world, model)
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
    check_size(cores=1 if options.cores is None else options.cores, gpus=options.gpus or 0)
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
        return cluster_of_kind(world, model)
    clusters = [cluster_of_kind(world, part, kind) for kind, part in model.kind_parts()]
    if model.is_batch and isinstance(world, VirtualWorld):
        from qtide.backends.clusters.batch_cluster import PartitionSync

        PartitionSync(world, clusters)
    return KindsCluster(clusters)


def cluster_of_kind(
    world: World, model: SiteModel, kind: NodeKind | None = None
) -> SimulatedCluster:
    """Create a cluster of equal nodes, with its own queue or with a batch system."""
    if model.is_batch and isinstance(world, VirtualWorld):
        # imported late: numpy and numba take a second to load, and most runs have no batch system
        from qtide.backends.clusters.batch_cluster import BatchCluster

        return BatchCluster(world, model, kind=kind)
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
        self._behind_others: dict[Future[None], None] = {}
        """What requests behind other users' wait for: their time, or that fewer nodes are held."""
        self._warm: WeakKeyDictionary[Ledger, set[str]] = WeakKeyDictionary()
        self._agents: set[str] = set()
        """Nodes with an agent that outlives a grant, with `keeps_agents`."""
        self._starting = 0
        """Nodes that are starting now."""
        self.seconds = seconds
        """Returns a task's duration, given its pretended seconds (None if it pretended nothing)."""
        self._malleable = VirtualMalleableTasks(
            world,
            lambda work, pretended: self.seconds(work, pretended),  # noqa: PLW0108 - it may change
        )
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
        cold = max((self._cold(node, job) for node in nodes), default=0.0)
        # even if there is no delay: others may make requests at the same moment
        if self._delays.start_beside and (cold or not self.keeps_agents):
            await self._start_beside_others(len(nodes), self._delays.start + cold)
        else:
            await self.world.sleep(self._delays.start + cold)
        for number, node in enumerate(nodes, first):
            if self._unusable(number):
                raise NodeUnusable(f"the agent of node {node.name} did not start")

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Call the task; deliver its answer once its duration has passed."""
        if work.member is not None:
            self._malleable.send(node, ticket, work)
            return
        result, error, pretended = _call(work, node.name)
        answered = partial(self._answered, node, ticket, result, error)
        self.world.alarm(self.seconds(work, pretended), answered)

    def tell(self, node: Node, ticket: int, message: Message) -> None:
        """Tell a malleable task something."""
        self._malleable.tell(ticket, message)

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
        for request in list(self._behind_others):
            _wake(request)

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
            await self._wait_behind_others(request.nodes)
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

    async def _wait_behind_others(self, nodes: int) -> None:
        """Wait as long as a request does after which so many more nodes are held than now.

        If nodes are given back meanwhile, it is one for fewer nodes, and may be granted at once.
        """
        began = self.world.now()
        while True:
            waited = self.world.now() - began
            left = self._queue_wait(len(self.granted) + nodes) - waited
            if left <= ROUNDING:
                return
            changed: Future[None] = self.world.future()
            self._behind_others[changed] = None
            alarm = self.world.alarm(left, partial(_wake, changed))
            try:
                await changed
            finally:
                alarm.cancel()
                self._behind_others.pop(changed, None)

    def _cold(self, node: Node, job: JobContext) -> float:
        """Extra seconds for a job's first start on a node, or for that of its agent."""
        if not self._delays.cold:
            return 0.0
        warm = self._agents if self.keeps_agents else self._warm.setdefault(job.ledger, set())
        cold = node.name not in warm
        warm.add(node.name)
        return self._delays.cold if cold else 0.0

    async def _start_beside_others(self, nodes: int, seconds: float) -> None:
        """Start nodes, which takes the longer, the more nodes start at the same time."""
        self._starting += nodes
        try:
            await self.world.sleep(0.0)  # until all that start at this moment are counted
            others = self._starting - 1
            await self.world.sleep(seconds + self._delays.start_beside * others)
        finally:
            self._starting -= nodes

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
