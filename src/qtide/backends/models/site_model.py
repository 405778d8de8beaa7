"""A site as described by a file: nodes, delays, failures, QPUs, service and jobs.

Unknown keys and infinite numbers in a site file are errors.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from qtide.backends.models.background import Background
from qtide.backends.models.failures import STRICT, Failures, Loss, Seconds
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.core.errors import UsageError
from qtide.core.resources import PLAIN, WHOLE, BillingWeights, Needs, NodeKind, size_in_bytes

SUFFIX = ".toml"
Scheduler = Literal["fifo", "easy"]


@dataclass(frozen=True)
class Mix:
    """Hybrid jobs: each round has parallel tasks, then a payload, then a single task.

    With a `share`, that share of the background's jobs becomes hybrid, with unchanged durations and
    node counts; the seconds given here then only set the proportions.
    """

    jobs: Annotated[int, Ge(0)] = 100
    days: Annotated[float, Gt(0)] = 1.0
    """Days over which the jobs are submitted, by hour and weekday like other users' jobs."""
    share: Annotated[float, Ge(0), Le(1)] = 0.0
    marked: bool = False
    """Whether jobs marked in the trace, as by `qtide twin import`, are hybrid."""
    rounds: Annotated[int, Ge(1)] = 4
    nodes: Annotated[int, Ge(1)] = 3
    tasks: tuple[Seconds, ...] = (77.3, 3.5, 0.2)
    table: dict[Annotated[int, Ge(1)], Seconds] = field(default_factory=dict)
    """Instead of `tasks`: seconds of one task by its number of nodes."""
    malleable: bool = False
    """Whether the task of `table` may change its number of nodes while it runs."""
    quantum: Seconds = 120.0
    alone: Seconds = 52.0
    needs: str = ""
    """What each of the parallel tasks needs, as in "cores=4,gpus=1"; if empty, a whole node."""
    alone_needs: str = ""
    """What the single task needs."""
    variation: Seconds = 0.0
    """Coefficient of variation of each job's durations."""
    users: Annotated[int, Ge(1)] = 50
    """Number of users who submit the jobs; a few of them submit most."""
    seed: int = 0

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        for words in filter(None, (self.needs, self.alone_needs)):
            Needs.parse(words)


@dataclass(frozen=True)
class Billing:
    """What the site charges: weights of what a job holds, by the second, as billing units."""

    node: Seconds = 1.0
    core: Seconds = 0.0
    gpu: Seconds = 0.0
    kinds: Mapping[str, Seconds] = field(default_factory=dict)
    """By the name of a kind: each of its nodes, in place of these weights."""

    __pydantic_config__ = STRICT

    def weights(self, kind: str) -> BillingWeights | None:
        """The weights for nodes of a kind; None if the site charges node-seconds."""
        if kind in self.kinds:
            return BillingWeights(nodes=self.kinds[kind])
        if self == Billing():
            return None
        return BillingWeights(cores=self.core, gpus=self.gpu, nodes=self.node)

    def of_partition(self, name: str) -> Billing:
        """What a partition charges that is a site of its own."""
        return replace(self, kinds={PLAIN: self.kinds[name]} if name in self.kinds else {})


@dataclass(frozen=True)
class Delays:
    """The cluster's own delays, in seconds."""

    grant: Seconds = 0.0
    """Until a request is considered; no node is held meanwhile."""
    start: Seconds = 0.0
    """Until a granted node can work."""
    start_beside: Seconds = 0.0
    """Added to a start for each other node that starts at the same time."""
    release: Seconds = 0.0
    """Until a released node is free; it counts as held meanwhile."""
    withdraw: Seconds = 0.0
    """Until a withdrawn request has left the queue."""
    reconfigure: Seconds | None = None
    """Until a malleable job's request to grow is considered; by default the same as `grant`."""
    cold: Seconds = 0.0
    """Added to a job's first start on a node; if agents are kept, only to that of the first job."""
    turnaround: Seconds = 0.0
    """Until a free node can be granted again; nobody holds it meanwhile."""
    step: Seconds = 0.0
    """The driver's overhead between two phases; applies only to the twin's own jobs."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Power:
    """Electrical power, in watts."""

    node_idle: Seconds = 150.0
    node_busy: Seconds = 500.0
    qpu: Seconds = 25_000.0

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Partition:
    """Nodes with their own queue and their own background jobs; partitions share the QPUs."""

    name: str
    nodes: Annotated[int, Ge(1)]
    """Its nodes; with `shares`, the most nodes of one of its jobs."""
    shares: str | None = None
    """Another partition whose nodes and queue it uses."""
    cores: Annotated[int, Ge(1)] | None = None
    """Cores of a node; those of the site if None, as for `gpus` and `memory`."""
    gpus: Annotated[int, Ge(0)] | None = None
    memory: str | None = None
    scheduler: Scheduler | None = None
    """The site's scheduler if None."""
    limit: Annotated[float, Gt(0)] | None = None
    background: Background = field(default_factory=Background)
    hybrid: Annotated[float, Ge(0)] = 1.0
    """Weight of this partition in the distribution of hybrid jobs."""
    losses: tuple[Loss, ...] = ()

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class SiteModel:
    """A cluster with QPUs; without backfilling and background jobs, it needs no batch system."""

    nodes: Annotated[int, Ge(1)] = 3
    cores: Annotated[int, Ge(1)] = 64
    """Cores of a node; tasks that say what they need share nodes."""
    gpus: Annotated[int, Ge(0)] = 0
    memory: str | None = None
    """Memory of a node, as in "256 GB"; if not said, it limits nothing."""
    kinds: tuple[str, ...] = ()
    """Nodes of several kinds, such as "gpu:2,cores=8,gpus=4", or the names of partitions, each of
    which is then a kind; if any, a hybrid job may hold nodes of all of them."""
    billing: Billing = Billing()
    scheduler: Scheduler = "fifo"
    limit: Annotated[float, Gt(0)] = 3600.0
    """Time limit of hybrid jobs' requests, which the scheduler uses for planning."""
    keeps_agents: bool = False
    """Whether a released node's agent keeps running and need not start again."""
    delays: Delays = Delays()
    waits: Mapping[Annotated[int, Ge(1)], Seconds] = field(default_factory=dict)
    """Seconds that a request waits in the queue, by the number of nodes held once it is granted. A
    missing number uses the next larger entry, or else the largest. For sites whose queue is not
    simulated."""
    losses: tuple[Loss, ...] = ()
    failures: Failures | None = None
    partitions: tuple[Partition, ...] = ()
    """If there are any, they define the nodes, the background and the losses."""
    qpu: QpuModel = field(default_factory=QpuModel)
    service: ServiceModel | None = None
    """The service that shares the QPUs; without it, each QPU has its own queue."""
    power: Power = Power()
    background: Background = field(default_factory=Background)
    hybrid: Mix = Mix()
    strategies: Mapping[str, Mapping[str, str | float | bool]] = field(default_factory=dict)
    """Options by strategy name, as for `qtide run`, such as malleable's expand_timeout."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.memory is not None:
            size_in_bytes(self.memory)
        if not self.partitions:
            NodeKind.parse_all(self.kinds, self.kind)

    @property
    def kind(self) -> NodeKind:
        """What a node has, if all are alike."""
        memory = None if self.memory is None else size_in_bytes(self.memory)
        weights = self.billing.weights(PLAIN)
        return NodeKind(PLAIN, self.nodes, self.cores, self.gpus, memory, weights=weights)

    def kind_parts(self) -> list[tuple[NodeKind, SiteModel]]:
        """The kinds of nodes that a hybrid job may hold, each with its queue as a separate site.

        The background's jobs run on the first kind, unless partitions have their own.
        """
        if not self.kinds:
            return [(self.kind, self)]
        if self.partitions:
            parts = [(name, self.part(name)) for name in self.kinds]
            return [(self._charged(replace(part.kind, name=name)), part) for name, part in parts]
        found: list[tuple[NodeKind, SiteModel]] = []
        for kind in NodeKind.parse_all(self.kinds, self.kind):
            part = replace(self, nodes=kind.count, cores=kind.cores, gpus=kind.gpus, kinds=())
            part = replace(part, background=Background()) if found else part
            found.append((self._charged(kind), part))
        return found

    def _charged(self, kind: NodeKind) -> NodeKind:
        return replace(kind, weights=self.billing.weights(kind.name))

    def parts(self) -> tuple[SiteModel, ...]:
        """Each partition as a separate site; the site itself if it has none."""
        return tuple(self._part(each) for each in self.partitions) or (self,)

    def owners(self) -> list[int]:
        """For each partition, the number of the one whose nodes it uses: mostly its own."""
        numbers = [self.names.index(each.shares or each.name) for each in self.partitions]
        return numbers or [0]

    @property
    def names(self) -> list[str]:
        """The names of the partitions."""
        return [each.name for each in self.partitions]

    @property
    def all_nodes(self) -> int:
        """Total number of nodes in all partitions."""
        if not self.partitions:
            return sum(kind.count for kind, _ in self.kind_parts())
        return sum(each.nodes for each in self.partitions if each.shares is None)

    def part(self, name: str) -> SiteModel:
        """The named partition as a site; if the name is empty, what a hybrid job usually gets."""
        if not name:
            return self if self.kinds else self.parts()[0]
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise UsageError(f"the site has no partition {name!r}; it has: {known}")
        return self.parts()[self.names.index(name)]

    def _part(self, part: Partition) -> SiteModel:
        return replace(
            self,
            nodes=part.nodes,
            cores=part.cores or self.cores,
            gpus=self.gpus if part.gpus is None else part.gpus,
            memory=part.memory or self.memory,
            billing=self.billing.of_partition(part.name),
            scheduler=part.scheduler or self.scheduler,
            limit=part.limit or self.limit,
            background=part.background,
            losses=part.losses,
            kinds=(),
            partitions=(),
        )

    @property
    def can_fail(self) -> bool:
        """Whether nodes, QPUs or the service fail at random."""
        of_service = None if self.service is None else self.service.failures
        return any((self.failures, self.qpu.failures, of_service))

    def queue_wait(self, nodes: int) -> float:
        """Seconds in the queue for a request after which the job holds `nodes` nodes."""
        larger = [number for number in self.waits if number >= nodes]
        return self.waits[min(larger) if larger else max(self.waits)] if self.waits else 0.0

    @property
    def is_batch(self) -> bool:
        """Whether background jobs or backfilling require a batch system's queue."""
        if self.partitions:
            return any(part.is_batch for part in self.parts())
        return bool(self.background) or self.scheduler == "easy"


def read_site(file: Path) -> SiteModel:
    """Read a site from a file."""
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(
            f"the site file {file} cannot be read ({error.strerror}); name a TOML file"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the site file {file} is not valid TOML: {error}") from None
    return site_of(table, file)


def site_of(table: dict[str, Any], file: Path) -> SiteModel:
    """Create a site from a table; trace paths are relative to the file."""
    from pydantic import TypeAdapter, ValidationError  # imported late, as it loads slowly

    try:
        model: SiteModel = TypeAdapter(SiteModel).validate_python(table)
    except ValidationError as error:
        said = [f"{'.'.join(map(str, each['loc']))}: {_said(each)}" for each in error.errors()]
        raise UsageError(f"{file}: {'; '.join(said)}; see docs/twin.md") from None
    if found := list(mistakes(model, table)):
        raise UsageError(f"{file}: {'; '.join(found)}")
    parts = [replace(p, background=_beside(file, p.background)) for p in model.partitions]
    return replace(model, background=_beside(file, model.background), partitions=tuple(parts))


def _said(error: Mapping[str, Any]) -> str:
    """Pydantic's error message, reworded where it is unclear."""
    if error["type"] == "unexpected_keyword_argument":
        return "there is no such key"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _beside(file: Path, background: Background) -> Background:
    """Make the path of a trace relative to the file that names it."""
    if background.trace is None:
        return background
    return replace(background, trace=str(file.parent / background.trace))


def mistakes(model: SiteModel, table: dict[str, Any]) -> Iterator[str]:
    """All mistakes in a site file that its types do not reveal."""
    yield from _of_partitions(model, table)
    yield from _of_background("background", model.background)
    yield from _of_losses("losses", model.losses, model.nodes)
    if model.losses and model.kinds:
        yield "losses: they name nodes of a site with one kind; remove them, or use failures"
    there = model.names or [kind.name for kind, _ in model.kind_parts()]
    for name in model.billing.kinds:
        if name not in there:
            yield f"billing.kinds: there is no kind {name!r}; there are: {', '.join(there)}"
    if model.waits and any(part.is_batch for part in model.parts()):
        yield "waits: the site has a queue of its own (scheduler, background); remove them, or it"
    for part in model.partitions:
        yield from _of_background(f"partitions.{part.name}.background", part.background)
        yield from _of_losses(f"partitions.{part.name}.losses", part.losses, part.nodes)
    if "hybrid" in table:
        yield from _of_hybrids(model)


def _of_partitions(model: SiteModel, table: dict[str, Any]) -> Iterator[str]:
    names = [part.name for part in model.partitions]
    for name, times in Counter(names).items():
        if times > 1:
            yield f"partitions: {times} of them are called {name!r}; give each a name of its own"
    for key in ("nodes", "background", "losses"):
        if names and key in table:
            yield f"{key}: each of the partitions has its own; remove it here"
    if names and not sum(part.hybrid for part in model.partitions):
        yield "partitions: no hybrid job comes to any of them; give one a hybrid above 0"
    owners = {part.name: part.nodes for part in model.partitions if part.shares is None}
    for part in model.partitions:
        yield from _of_sharing(part, owners)
    for name in model.kinds if names else ():
        if name not in owners:
            yield f"kinds: {name!r} is not a partition with nodes of its own; name partitions"


def _of_sharing(part: Partition, owners: Mapping[str, int]) -> Iterator[str]:
    """Mistakes of a partition that uses the nodes of another one."""
    place, owner = f"partitions.{part.name}", part.shares
    if owner is None:
        return
    if owner not in owners:
        known = ", ".join(owners) or "none"
        yield f"{place}.shares: {owner!r} has no nodes of its own; name one that has: {known}"
    elif part.nodes > owners[owner]:
        yield f"{place}.nodes: {owner}, whose nodes it shares, has {owners[owner]}"
    for key in ("scheduler", "limit", "cores", "gpus", "memory", "losses"):
        if getattr(part, key):
            yield f"{place}.{key}: {owner}, whose nodes it shares, says that; remove it here"


def _of_background(place: str, background: Background) -> Iterator[str]:
    if background.trace is not None and background.generate is not None:
        yield f"{place}: it is a trace or generated, not both; remove one"


def _of_losses(place: str, losses: tuple[Loss, ...], nodes: int) -> Iterator[str]:
    names = {f"n{number}" for number in range(1, nodes + 1)}
    for loss in losses:
        if loss.node not in names:
            yield f"{place}: there is no node {loss.node!r}; they are n1 to n{nodes}"


def _of_hybrids(model: SiteModel) -> Iterator[str]:
    mix = model.hybrid
    parts = zip(model.parts(), model.partitions, strict=False)
    homes = [home for home, part in parts if part.hybrid] or [model]
    least = min(home.nodes for home in homes)
    if model.kinds and not model.partitions:
        needs = Needs.parse(mix.needs) if mix.needs else WHOLE
        kinds = [kind for kind, _ in model.kind_parts()]
        least = next((kind.count for kind in kinds if kind.name == needs.kind), kinds[0].count)
    if mix.nodes > least and not (mix.share or mix.marked):
        yield f"hybrid.nodes: a job of {mix.nodes} nodes does not fit on {least}; ask for fewer"
    if mix.share and mix.marked:
        yield "hybrid: its jobs are a share of the background or marked in it, not both; remove one"
    if mix.marked and not all(home.background.trace for home in homes):
        yield "hybrid.marked: there is no trace that could mark jobs; add background.trace"
    if mix.share and not all(home.background for home in homes):
        yield "hybrid.share: there are no background jobs to take it from; add [background]"
    yield from _of_needs(model)
    if mix.table and (mix.needs or mix.alone_needs):
        yield "hybrid.table: its task takes whole nodes; remove needs, or the table"
    if mix.malleable and not mix.table:
        yield "hybrid.malleable: no table says how long its task takes; add hybrid.table"
    if mix.table and 1 not in mix.table:
        yield "hybrid.table: it has to say how long one node takes; add an entry for 1"
    if model.service is not None and mix.quantum > model.service.limit:
        limit = model.service.limit
        yield f"hybrid.quantum: {mix.quantum:g} s are more than the service's limit of {limit:g} s"


def _of_needs(model: SiteModel) -> Iterator[str]:
    for key, words in (("needs", model.hybrid.needs), ("alone_needs", model.hybrid.alone_needs)):
        why = unmet(model, Needs.parse(words) if words else WHOLE)
        if why:
            yield f"hybrid.{key}: {why}"


def unmet(model: SiteModel, needs: Needs) -> str | None:
    """Why no node of the site can meet what a task needs; None if one can."""
    there = {kind.name: kind for kind, _ in model.part("").kind_parts()}
    kind = there.get(needs.kind or next(iter(there)))
    if kind is None:
        return f"there is no kind {needs.kind!r}; there are: {', '.join(there)}"
    if kind.share(needs) > 1:
        return f"a task needs {needs}, but a node has {kind.content}"
    return None
