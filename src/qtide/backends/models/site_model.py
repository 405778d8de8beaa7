"""A site as described by a file: nodes, delays, failures, QPUs, service and jobs.

Unknown keys and infinite numbers in a site file are errors. numpy and the modules for job traces
are imported only to generate jobs, as most runs that read a site file need neither.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, log, sqrt
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from qtide.core.errors import UsageError
from qtide.core.resources import PLAIN, NodeKind, size_in_bytes

if TYPE_CHECKING:
    from numpy.random import Generator as NumpyRandom

    from qtide.backends.models.trace import Trace

STRICT = {"extra": "forbid", "allow_inf_nan": False}
"""Pydantic configuration of every part of a site."""

SUFFIX = ".toml"
Seconds = Annotated[float, Ge(0)]
Scheduler = Literal["fifo", "easy"]


@dataclass(frozen=True)
class Loss:
    """Loss of a node at second `at`; it recovers after `back` seconds, or never if None.

    With `answers`, its task continues and answers too late, as on a node that was only cut off.
    """

    at: Annotated[float, Ge(0)]
    node: str
    back: float | None = None
    answers: bool = False

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Failures:
    """Random node failures, with exponential times between failures and until recovery."""

    every: Annotated[float, Gt(0)]
    """Mean seconds from one failure of a node to its next."""
    back: Annotated[float, Gt(0)] = 3600.0
    """Mean seconds until a failed node recovers."""
    seed: int = 0

    __pydantic_config__ = STRICT

    def losses(self, nodes: Sequence[str]) -> Iterator[Loss]:
        """Endless stream of node failures; those of a node that is already down have no effect."""
        random, at = Random(self.seed), 0.0
        while True:
            at += random.expovariate(len(nodes) / self.every)
            yield Loss(at, random.choice(nodes), random.expovariate(1 / self.back))


@dataclass(frozen=True)
class Window:
    """A calibration or maintenance window: no payload starts for `lasts` seconds from `at`."""

    at: Seconds
    lasts: Annotated[float, Gt(0)]
    every: Annotated[float, Gt(0)] | None = None
    """Seconds from one window's start to the next; None if it does not recur."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.every is not None and self.lasts >= self.every:
            raise ValueError("a window has to last less than the time from one to the next")

    def end(self, now: float) -> float:
        """End of the window that contains `now`; `now` itself if there is none."""
        if now < self.at:
            return now
        times = floor((now - self.at) / self.every) if self.every else 0
        return max(now, self.at + times * (self.every or 0.0) + self.lasts)


@dataclass(frozen=True)
class QpuModel:
    """The QPUs of a site: their number, and their payloads' delays."""

    number: Annotated[int, Ge(1)] = 1
    """Number of QPUs."""
    licences: Annotated[int, Ge(1)] | None = None
    """Total leases of all QPUs, as a batch system counts them; by default, each QPU has as many as
    it has virtual QPUs."""
    offload: Seconds = 0.0
    """Seconds to send a payload to the device's queue and to return its answer."""
    wait: Seconds = 0.0
    """Seconds that each payload waits for other users' payloads."""
    spread: Literal["fixed", "exponential", "lognormal"] = "fixed"
    """Distribution of a payload's time around that of its profile."""
    variation: Seconds = 0.2
    """Coefficient of variation of a lognormal spread."""
    order: Literal["jobs", "arrival"] = "jobs"
    """Without the service: whether payloads run in order of their jobs or of their own arrival."""
    windows: tuple[Window, ...] = ()

    __pydantic_config__ = STRICT

    def back(self, now: float) -> float:
        """Earliest time at which the device can start a payload: now, or after its windows."""
        later = max((window.end(now) for window in self.windows), default=now)
        return later if later == now else self.back(later)

    def factor(self, seed: int) -> float:
        """Random ratio of a payload's actual to its expected time, fixed by the seed."""
        if self.spread == "fixed":
            return 1.0
        random = Random(seed)
        if self.spread == "exponential":
            return random.expovariate(1.0)
        sigma = sqrt(log(1 + self.variation**2))
        return random.lognormvariate(-(sigma**2) / 2, sigma)


@dataclass(frozen=True)
class ServiceModel:
    """The vQPU service of a site: its configuration, and its clients' demands."""

    policy: str = "fair"
    """Name of the policy by which the service orders payloads."""
    promised: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Share of future device time that may be promised."""
    longest: Annotated[float, Gt(0)] | None = None
    """Longest wait that clients request; a refused client submits without this limit."""
    limit: Annotated[float, Gt(0)] = 3600.0
    """Seconds that a payload may occupy a device; one that takes longer fails."""
    commit: Seconds = 0.0004
    """Seconds for a write to the store."""
    half_life: Annotated[float, Gt(0)] = 86_400.0
    """Half-life of usage for fair share, in seconds."""

    __pydantic_config__ = STRICT


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
    quantum: Seconds = 120.0
    alone: Seconds = 52.0
    variation: Seconds = 0.0
    """Coefficient of variation of each job's durations."""
    users: Annotated[int, Ge(1)] = 50
    """Number of users who submit the jobs; a few of them submit most."""
    seed: int = 0

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Delays:
    """The cluster's own delays, in seconds."""

    grant: Seconds = 0.0
    """Until a request is considered; no node is held meanwhile."""
    start: Seconds = 0.0
    """Until a granted node can work."""
    release: Seconds = 0.0
    """Until a released node is free; it counts as held meanwhile."""
    withdraw: Seconds = 0.0
    """Until a withdrawn request has left the queue."""
    reconfigure: Seconds | None = None
    """Until a malleable job's request to grow is considered; by default the same as `grant`."""
    cold: Seconds = 0.0
    """Added to a job's first start on a node."""
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


DAY, WEEK = 86_400.0, 604_800.0
HOURS = (4, 3, 3, 2, 2, 2, 3, 5, 8, 11, 13, 13, 12, 13, 14, 14, 13, 11, 9, 8, 7, 6, 5, 5)
"""Relative number of jobs submitted in each hour of a day."""
DAYS = (1.15, 1.2, 1.2, 1.15, 1.1, 0.6, 0.6)
"""Relative number of jobs submitted on each day of a week, from Monday."""

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class Generator:
    """Random generator of other users' jobs."""

    jobs: Annotated[int, Ge(0)] = 1000
    days: Positive = 7.0
    """Days over which the jobs are submitted."""
    largest: Annotated[int, Ge(1)] = 64
    """Maximum number of nodes of a job."""
    smaller: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Probability of each doubling of a job's nodes; smaller values give smaller jobs."""
    mean_run: Positive = 3600.0
    spread_run: Positive = 1.5
    """Standard deviation of the logarithm of the run time."""
    longest: Positive = DAY
    users: Annotated[int, Ge(1)] = 50
    seed: int = 0

    __pydantic_config__ = STRICT

    def chunks(self, size: int = 65_536) -> Iterator[Trace]:
        """Generate the jobs in chunks, in order of submission; reproducible by the seed."""
        import numpy as np

        random = np.random.default_rng([self.seed, self.jobs])
        last = 0.0
        for start in range(0, self.jobs, size):
            number = min(size, self.jobs - start)
            work = last + np.cumsum(random.exponential(1.0, number))
            last = float(work[-1])
            yield self._jobs(random, _by_calendar(work / self.jobs * self.days))

    def trace(self) -> Trace:
        """All jobs at once."""
        from qtide.backends.models.trace import Trace

        return next(self.chunks(max(1, self.jobs)), Trace.of([]))

    def _jobs(self, random: NumpyRandom, submit: Any) -> Trace:
        import numpy as np

        from qtide.backends.models.trace import Trace

        number = len(submit)
        mean = np.log(self.mean_run) - self.spread_run**2 / 2
        run = np.clip(random.lognormal(mean, self.spread_run, number), 1.0, self.longest)
        limit = np.ceil(run * random.choice([1, 1.5, 2, 4, 10], number) / 600) * 600
        user = np.minimum(random.zipf(1.5, number), self.users)
        sizes = 2.0 ** np.minimum(random.geometric(1 - self.smaller, number) - 1, 40)
        odd = random.random(number) < 0.25
        sizes[odd] = np.ceil(sizes[odd] * random.uniform(0.5, 1.0, int(odd.sum())))
        nodes = np.minimum(sizes, self.largest).astype(np.int64)
        return Trace(submit, nodes, run, limit, user)


def _by_calendar(days: Any) -> Any:
    """Convert evenly spread days to submission times in seconds, weighted by hour and weekday."""
    import numpy as np

    hours = np.concatenate([np.array(HOURS) * weight for weight in DAYS])
    edges = np.concatenate([[0.0], np.cumsum(hours / hours.sum())])
    weeks = days / 7
    whole = np.floor(weeks)
    return (whole + np.interp(weeks - whole, edges, np.linspace(0, 1, len(edges)))) * WEEK


@dataclass(frozen=True)
class Background:
    """Other users' jobs: a trace in the Standard Workload Format, or generated ones."""

    trace: str | None = None
    generate: Generator | None = None

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Partition:
    """Nodes with their own queue and their own background jobs; partitions share the QPUs."""

    name: str
    nodes: Annotated[int, Ge(1)]
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
    """Nodes of several kinds, such as "gpu:2,cores=8,gpus=4"; if any, they replace the nodes."""
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
    qpu: QpuModel = QpuModel()
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
        NodeKind.parse_all(self.kinds)

    @property
    def node_kinds(self) -> list[NodeKind]:
        """The kinds of its nodes, if it has several."""
        return NodeKind.parse_all(self.kinds)

    @property
    def kind(self) -> NodeKind:
        """What a node has."""
        memory = None if self.memory is None else size_in_bytes(self.memory)
        return NodeKind(PLAIN, self.nodes, self.cores, self.gpus, memory)

    def parts(self) -> tuple[SiteModel, ...]:
        """Each partition as a separate site; the site itself if it has none."""
        return tuple(self._part(each) for each in self.partitions) or (self,)

    @property
    def all_nodes(self) -> int:
        """Total number of nodes in all partitions."""
        return sum(part.nodes for part in self.parts())

    def part(self, name: str) -> SiteModel:
        """The named partition as a site; the first one if the name is empty."""
        names = [each.name for each in self.partitions]
        if not name:
            return self.parts()[0]
        if name not in names:
            known = ", ".join(names) or "none"
            raise UsageError(f"the site has no partition {name!r}; it has: {known}")
        return self.parts()[names.index(name)]

    def _part(self, part: Partition) -> SiteModel:
        return replace(
            self,
            nodes=part.nodes,
            scheduler=part.scheduler or self.scheduler,
            limit=part.limit or self.limit,
            background=part.background,
            losses=part.losses,
            partitions=(),
        )

    def queue_wait(self, nodes: int) -> float:
        """Seconds in the queue for a request after which the job holds `nodes` nodes."""
        larger = [number for number in self.waits if number >= nodes]
        return self.waits[min(larger) if larger else max(self.waits)] if self.waits else 0.0

    @property
    def is_batch(self) -> bool:
        """Whether background jobs or backfilling require a batch system's queue."""
        others = self.background.trace is not None or self.background.generate is not None
        return others or self.scheduler == "easy"


def read_site(file: Path) -> SiteModel:
    """Read a site from a file."""
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(
            f"the site file {file} cannot be read ({error.strerror}); name a TOML file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the site file {file} is not valid TOML: {error}") from None
    return site_of(table, file)


def site_of(table: dict[str, Any], file: Path) -> SiteModel:
    """Create a site from a table; trace paths are relative to the file."""
    from pydantic import TypeAdapter, ValidationError  # imported late, as it loads slowly

    try:
        model: SiteModel = TypeAdapter(SiteModel).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file}: {place}: {_said(first)}; see docs/twin.md") from None
    for mistake in mistakes(model, table):
        raise UsageError(f"{file}: {mistake}")
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
    if mix.nodes > least and not (mix.share or mix.marked):
        yield f"hybrid.nodes: a job of {mix.nodes} nodes does not fit on {least}; ask for fewer"
    if mix.share and mix.marked:
        yield "hybrid: its jobs are a share of the background or marked in it, not both; remove one"
    if mix.marked and not all(home.background.trace for home in homes):
        yield "hybrid.marked: there is no trace that could mark jobs; add background.trace"
    if mix.share and not all(_has_jobs(home.background) for home in homes):
        yield "hybrid.share: there are no background jobs to take it from; add [background]"
    if mix.table and 1 not in mix.table:
        yield "hybrid.table: it has to say how long one node takes; add an entry for 1"
    if model.service is not None and mix.quantum > model.service.limit:
        limit = model.service.limit
        yield f"hybrid.quantum: {mix.quantum:g} s are more than the service's limit of {limit:g} s"


def _has_jobs(background: Background) -> bool:
    return background.trace is not None or background.generate is not None
