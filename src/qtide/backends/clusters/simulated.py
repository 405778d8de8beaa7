"""A cluster in virtual time: the embedded cluster's rules, with delays and faults as parameters."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO, TextIOWrapper
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from qtide.backends.clusters.cluster import Node, NodeRequest, Work
from qtide.backends.clusters.fifo import FifoAllocation, FifoCluster
from qtide.backends.clusters.kind import ClusterKind, Setting, numbered
from qtide.backends.clusters.pretend import metered
from qtide.backends.models.site_model import SUFFIX, Delays, Failures, Loss, SiteModel, read_site
from qtide.core.errors import NodeUnusable, PhaseError
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger, Span
from qtide.core.log import MOST, Log
from qtide.core.options import Option
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import World


class Recorded:
    """The n-th call of a function takes as long as its n-th call took; later ones, the mean."""

    def __init__(self, calls: Mapping[str, Sequence[float]] | None = None) -> None:
        self._calls = calls or {}
        self._counts: Counter[tuple[JobContext, str]] = Counter()
        self.used: set[str] = set()
        """Tasks that pretended nothing and took as long as they did before,"""
        self.missing: set[str] = set()
        """and those of which nothing is known: they took no time."""

    @staticmethod
    def of(intervals: Iterable[Interval], scale: float) -> Recorded:
        """From a run's ledger, on whose clock a second took `scale` real seconds."""
        calls: dict[str, list[float]] = defaultdict(list)
        spans = sorted(intervals, key=lambda interval: interval.start)
        imports = {(each.lane, each.start): each.seconds for each in spans if _within_a_task(each)}
        for each in spans:
            if each.what == "busy" and each.lane.startswith("node/"):
                worked = each.seconds - imports.get((each.lane, each.start), 0.0)
                calls[each.label].append(worked * scale)
        return Recorded(calls)

    def seconds(self, work: Work, pretended: float | None) -> float:
        """How long a task takes; what it pretended, if anything, counts alone."""
        if pretended is not None:
            return pretended
        name = work.task.name
        known = self._calls.get(name)
        if not known:
            self.missing.add(name)
            return 0.0
        self.used.add(name)
        number = self._counts[work.job, name]
        self._counts[work.job, name] += 1
        return known[number] if number < len(known) else fmean(known)


def _within_a_task(interval: Interval) -> bool:
    """What a task has to import first is part of its node's start, which has no label itself."""
    return interval.what == "starting" and bool(interval.label)


class Printed(TextIOWrapper):
    """Stands for stdout and stderr during one task at a time."""

    def __init__(self) -> None:
        self._bytes = BytesIO()
        self.in_use = False
        super().__init__(self._bytes, encoding="utf-8", errors="replace", write_through=True)

    def write(self, text: str, /) -> int:
        """Keep it; a logger that was set up in a task may also write between tasks."""
        if not self.in_use:
            return sys.stderr.write(text)
        return super().write(text) if self._bytes.tell() < MOST else len(text)

    def fileno(self) -> int:
        """For processes that the task starts: they have no log."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def take(self) -> str:
        """What was printed since the last time."""
        if not self._bytes.tell():
            return ""
        text = self._bytes.getvalue().decode(errors="replace")
        self._bytes.seek(0)
        self._bytes.truncate()
        return text


_unused: list[Printed] = []
"""Used again, since creating one takes longer than all the rest of a task in virtual time."""


class logged:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within, what this process prints goes to a log."""

    def __init__(self, log: Log | None, node: str, task: str, function: str) -> None:
        self._log = log
        self._from = (node, task, function)

    def __enter__(self) -> None:
        if self._log is not None:
            self._usual = sys.stdout, sys.stderr
            self._printed = _unused.pop() if _unused else Printed()
            self._printed.in_use = True
            sys.stdout = sys.stderr = self._printed

    def __exit__(self, *_: Any) -> None:
        if self._log is not None:
            sys.stdout, sys.stderr = self._usual
            self._printed.in_use = False
            text = self._printed.take()
            _unused.append(self._printed)
            if text:
                node, *place = self._from
                self._log.write(node, text, *place)


__all__ = ["Delays", "Loss", "Simulated", "SimulatedCluster", "cluster_of", "site_model"]


@dataclass(frozen=True)
class SimulatedOptions:
    """What its user may choose."""

    durations: Annotated[
        str,
        Option(
            "The earlier run that says how long tasks take that pretend nothing: its name, or "
            "none.  [default: the newest of the same program]",
            metavar="RUN",
        ),
    ] = ""


class SimulatedCluster(FifoCluster):
    """Tasks are really called, at once; the time they pretend to work passes on the clock."""

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
    ) -> None:
        names = [f"n{number}" for number in range(1, nodes + 1)]
        super().__init__(world, names, delays.grant, delays.withdraw)
        self._delays = delays
        self._queue_wait = queue_wait
        """Seconds in the queue of a request that leads to so many nodes held."""
        self._warm: WeakKeyDictionary[Ledger, set[str]] = WeakKeyDictionary()
        self.seconds = seconds
        """How long a task takes, by what it pretended; None if it pretended nothing."""
        self._unusable = unusable
        self._starts = 0
        self._dead: dict[str, Loss] = {}
        self._turning: set[str] = set()
        """Nodes that nobody holds and nobody can have yet."""
        self._faults = [world.start(self._strike(loss)) for loss in losses]
        if failures is not None:
            self._faults.append(world.start(self._fail(failures.losses(names))))

    async def ready(self, node: Node, job: JobContext) -> None:
        """As several are."""
        await self.all_ready([node], job)

    async def all_ready(self, nodes: Sequence[Node], job: JobContext) -> None:
        """After the longest start's delay; the agents of some starts never answer."""
        first = self._starts + 1
        self._starts += len(nodes)
        delay = self._delays.start + max((self._cold(node, job) for node in nodes), default=0.0)
        await self.world.sleep(delay)  # others may ask at the same moment, even if this is 0
        for number, node in enumerate(nodes, first):
            if self._unusable(number):
                raise NodeUnusable(f"the agent of node {node.name} did not start")

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Call the task; the answer comes after the time that it pretended to work."""
        result, error, pretended = _call(work, node.name)
        answered = partial(self._answered, node, ticket, result, error)
        self.world.alarm(self.seconds(work, pretended), answered)

    def interrupt(self, node: Node) -> None:
        """What the task would answer comes too late."""

    async def stopped(self, node: Node) -> bool:
        """At once; a dead node does not come back this way."""
        return node.name not in self._dead

    async def retire(self, held: Mapping[Node, Span]) -> None:
        """All nodes at the same moment, after the release's delay."""
        for node in held:
            node.lose("was given back")
        if self._delays.release:
            await self.world.sleep(self._delays.release)
        for each in held.items():
            await self.retire_one(*each)

    def take_back(self, name: str) -> None:
        """After the turnaround, in which nobody holds the node."""
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
        """To grow may take another time than to begin."""
        grows = request.least is not None and self._delays.reconfigure is not None
        return (self._delays.reconfigure or 0.0) if grows else self._delays.grant

    def expected_wait(self, nodes: int) -> float:
        """As the queue of the others, and ours, let us expect."""
        queue = self._queue_wait(len(self.granted) + nodes)
        return super().expected_wait(nodes) + queue if queue else super().expected_wait(nodes)

    async def queue_up(self, request: NodeRequest) -> FifoAllocation:
        """Wait behind the others' requests, while the request's patience runs; then as ever."""
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
        """Seconds that the first start of a job on a node takes longer."""
        if not self._delays.cold:
            return 0.0
        warm = self._warm.setdefault(job.ledger, set())
        cold = node.name not in warm
        warm.add(node.name)
        return self._delays.cold if cold else 0.0

    async def occupy(self, stranger: JobContext, nodes: int, seconds: float) -> None:
        """Let somebody else's job hold nodes: it stands in the same queue, but nobody sees that."""
        allocation = await self._stand(NodeRequest(stranger, nodes))
        try:
            await self.world.sleep(seconds)
        finally:
            await allocation.release()

    async def close(self) -> None:
        """End the faults that are still to come."""
        await self.world.cancel(self._faults)

    def _answered(self, node: Node, ticket: int, result: Any, error: Exception | None) -> None:
        loss = self._dead.get(node.name)
        if loss is None or loss.answers:
            node.deliver(ticket, result, error)

    def _refuse_if_hopeless(self, request: NodeRequest) -> None:
        """A request waits for nodes that will be back."""
        back = sum(loss.back is not None for loss in self._dead.values())
        self.size += back
        try:
            super()._refuse_if_hopeless(request)
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
            while loss.node in self.granted:  # whoever held it has to let go first
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


class Simulated(ClusterKind):
    """Nothing is waited for: the strategies' own code, on a clock that jumps."""

    summary = "virtual time, as simulated, simulated:12, simulated:SITE.toml or SITE.toml:PARTITION"
    Options: type = SimulatedOptions

    def check(self, setting: Setting) -> None:
        """Refuse sizes that cannot be."""
        setting.check_nodes(site_model(setting).nodes)

    def world(self, time_scale: float) -> World:
        """Virtual time has no scale."""
        return VirtualWorld()

    async def open(self, world: World, setting: Setting) -> SimulatedCluster:
        """All nodes are there at once."""
        return cluster_of(world, site_model(setting))


def is_site(argument: str) -> bool:
    """Whether a cluster's argument names a site file, and maybe one of its partitions."""
    return argument.endswith(SUFFIX) or f"{SUFFIX}:" in argument


def site_model(setting: Setting) -> SiteModel:
    """The site that a cluster's argument names: a file, or so many nodes without any delay."""
    if is_site(setting.argument):
        file, _, partition = setting.argument.partition(f"{SUFFIX}:")
        return read_site(Path(file + SUFFIX if partition else file)).part(partition)
    return SiteModel(nodes=numbered("simulated", setting.argument))


def cluster_of(world: World, model: SiteModel) -> SimulatedCluster:
    """The cluster of a site: its own queue, or a batch system with other users' jobs."""
    if model.is_batch and isinstance(world, VirtualWorld):
        from qtide.backends.clusters.batch import BatchCluster

        return BatchCluster(world, model)
    cluster = SimulatedCluster(
        world,
        model.nodes,
        model.delays,
        model.losses,
        failures=model.failures,
        queue_wait=model.queue_wait,
    )
    cluster.keeps_agents = model.keeps_agents
    return cluster
