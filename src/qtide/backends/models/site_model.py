"""A site as a file describes it: nodes, delays, failures, QPUs, service, and the jobs on it.

Unknown keys and infinite numbers in a site file are mistakes. numpy, with all that works on traces
of jobs, is imported only where jobs are generated: most runs that read this file need neither.
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

if TYPE_CHECKING:
    from numpy.random import Generator as NumpyRandom

    from qtide.backends.models.trace import Trace

STRICT = {"extra": "forbid", "allow_inf_nan": False}
"""The configuration of every part of a site, read by pydantic alone."""

SUFFIX = ".toml"
Seconds = Annotated[float, Ge(0)]
Scheduler = Literal["fifo", "easy"]


@dataclass(frozen=True)
class Loss:
    """The loss of a node: at which second, and after how many seconds it is back, if ever.

    With `answers`, its task goes on and answers too late, as on a node that was only cut off.
    """

    at: Annotated[float, Ge(0)]
    node: str
    back: float | None = None
    answers: bool = False

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Failures:
    """Each node fails at random: exponential times between failures, and until it is back."""

    every: Annotated[float, Gt(0)]
    """The mean seconds from one failure of a node to its next."""
    back: Annotated[float, Gt(0)] = 3600.0
    """The mean seconds until it is back."""
    seed: int = 0

    __pydantic_config__ = STRICT

    def losses(self, nodes: Sequence[str]) -> Iterator[Loss]:
        """The failures of all nodes, without end; those of a node that is down do not count."""
        random, at = Random(self.seed), 0.0
        while True:
            at += random.expovariate(len(nodes) / self.every)
            yield Loss(at, random.choice(nodes), random.expovariate(1 / self.back))


@dataclass(frozen=True)
class Window:
    """A calibration or a maintenance: no payload starts from `at` on for `lasts` seconds."""

    at: Seconds
    lasts: Annotated[float, Gt(0)]
    every: Annotated[float, Gt(0)] | None = None
    """After how many seconds it comes again; never, if it is not given."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.every is not None and self.lasts >= self.every:
            raise ValueError("a window has to last less than the time from one to the next")

    def end(self, now: float) -> float:
        """When the window in which `now` lies is over; `now` itself if there is none."""
        if now < self.at:
            return now
        times = floor((now - self.at) / self.every) if self.every else 0
        return max(now, self.at + times * (self.every or 0.0) + self.lasts)


@dataclass(frozen=True)
class QpuModel:
    """The QPUs of a site: how many, and which delays their payloads have."""

    number: Annotated[int, Ge(1)] = 1
    """How many of them there are."""
    licences: Annotated[int, Ge(1)] | None = None
    """Leases of all QPUs together, as a batch system counts them; by default, each QPU has as many
    as it has virtual QPUs."""
    offload: Seconds = 0.0
    """Seconds per payload to send it to the device's queue and to return its answer."""
    wait: Seconds = 0.0
    """Seconds per payload that it waits for payloads of others."""
    spread: Literal["fixed", "exponential", "lognormal"] = "fixed"
    """How the time of a payload varies around that of its profile."""
    variation: Seconds = 0.2
    """The coefficient of variation of a lognormal spread."""
    order: Literal["jobs", "arrival"] = "jobs"
    """Without the service: whether earlier jobs' payloads go first, or those that came first."""
    windows: tuple[Window, ...] = ()

    __pydantic_config__ = STRICT

    def back(self, now: float) -> float:
        """When the device can start a payload: now, or after its windows."""
        later = max((window.end(now) for window in self.windows), default=now)
        return later if later == now else self.back(later)

    def factor(self, seed: int) -> float:
        """How many times as long as expected a payload takes: the same for the same seed."""
        if self.spread == "fixed":
            return 1.0
        random = Random(seed)
        if self.spread == "exponential":
            return random.expovariate(1.0)
        sigma = sqrt(log(1 + self.variation**2))
        return random.lognormvariate(-(sigma**2) / 2, sigma)


@dataclass(frozen=True)
class ServiceModel:
    """The vQPU service of a site: what its configuration says, and what its clients ask for."""

    policy: str = "fair"
    """The name of the service's policy, which orders payloads."""
    promised: Annotated[float, Ge(0), Lt(1)] = 0.5
    """The share of the time ahead that may be promised."""
    longest: Annotated[float, Gt(0)] | None = None
    """The longest wait that clients ask for; a refused client submits without one."""
    limit: Annotated[float, Gt(0)] = 3600.0
    """How long a payload may occupy a device; one that takes longer fails."""
    commit: Seconds = 0.0004
    """Seconds that the store takes to write."""
    half_life: Annotated[float, Gt(0)] = 86_400.0
    """Seconds after which usage counts half for fair share."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Mix:
    """Hybrid jobs: each round has tasks side by side, a payload, then one task alone.

    With a `share`, that part of the background's jobs is hybrid instead, each as long as before and
    on as many nodes; the seconds here then only set the proportions.
    """

    jobs: Annotated[int, Ge(0)] = 100
    days: Annotated[float, Gt(0)] = 1.0
    """Days in which they are submitted, by hour and weekday as the others."""
    share: Annotated[float, Ge(0), Le(1)] = 0.0
    marked: bool = False
    """Whether the jobs that the trace marks are hybrid, as `qtide twin import` writes it."""
    rounds: Annotated[int, Ge(1)] = 4
    nodes: Annotated[int, Ge(1)] = 3
    tasks: tuple[Seconds, ...] = (77.3, 3.5, 0.2)
    table: dict[Annotated[int, Ge(1)], Seconds] = field(default_factory=dict)
    """Instead of tasks: seconds of one task by the number of nodes that it runs on."""
    quantum: Seconds = 120.0
    alone: Seconds = 52.0
    variation: Seconds = 0.0
    """The coefficient of variation of each job's durations."""
    users: Annotated[int, Ge(1)] = 50
    """How many users submit them; a few of them submit most."""
    seed: int = 0

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Delays:
    """Seconds that the cluster itself takes for each step."""

    grant: Seconds = 0.0
    """Until a request is looked at; no node is held meanwhile."""
    start: Seconds = 0.0
    """Until a granted node can work."""
    release: Seconds = 0.0
    """Until a node that was given back is free; it is held meanwhile."""
    withdraw: Seconds = 0.0
    """Until a withdrawn request has left the queue."""
    reconfigure: Seconds | None = None
    """Until a malleable job's request to grow is looked at; the same as `grant` by default."""
    cold: Seconds = 0.0
    """Added to the first start of a job on a node."""
    turnaround: Seconds = 0.0
    """Until a node that is free can be granted again; nobody holds it meanwhile."""
    step: Seconds = 0.0
    """Between two phases of a program, for its driver; only the twin's own jobs take it."""

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
"""How many of a day's jobs are submitted in each of its hours, relative to each other."""
DAYS = (1.15, 1.2, 1.2, 1.15, 1.1, 0.6, 0.6)
"""The same for the days of a week, from Monday on."""

Positive = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class Generator:
    """What the jobs of other users are like; they are generated at random."""

    jobs: Annotated[int, Ge(0)] = 1000
    days: Positive = 7.0
    """In how many days they are submitted."""
    largest: Annotated[int, Ge(1)] = 64
    """The most nodes of a job."""
    smaller: Annotated[float, Gt(0), Lt(1)] = 0.5
    """How strongly small jobs prevail: the chance of each doubling of the nodes."""
    mean_run: Positive = 3600.0
    spread_run: Positive = 1.5
    """The standard deviation of the logarithm of the run time."""
    longest: Positive = DAY
    users: Annotated[int, Ge(1)] = 50
    seed: int = 0

    __pydantic_config__ = STRICT

    def chunks(self, size: int = 65_536) -> Iterator[Trace]:
        """The jobs in the order of submission, piece by piece; the same for the same seed."""
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
    """Convert evenly spread days to seconds at which people submit, by hour and by weekday."""
    import numpy as np

    hours = np.concatenate([np.array(HOURS) * weight for weight in DAYS])
    edges = np.concatenate([[0.0], np.cumsum(hours / hours.sum())])
    weeks = days / 7
    whole = np.floor(weeks)
    return (whole + np.interp(weeks - whole, edges, np.linspace(0, 1, len(edges)))) * WEEK


@dataclass(frozen=True)
class Background:
    """The jobs of other users: a trace in the Standard Workload Format, or generated ones."""

    trace: str | None = None
    generate: Generator | None = None

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Partition:
    """Nodes with a queue and other users of their own; all partitions share the QPUs."""

    name: str
    nodes: Annotated[int, Ge(1)]
    scheduler: Scheduler | None = None
    """As the site's, if it is not given."""
    limit: Annotated[float, Gt(0)] | None = None
    background: Background = field(default_factory=Background)
    hybrid: Annotated[float, Ge(0)] = 1.0
    """Weight of this partition among those that hybrid jobs come to."""
    losses: tuple[Loss, ...] = ()

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class SiteModel:
    """A cluster with QPUs. Without a scheduler or background jobs, it has no queue but its own."""

    nodes: Annotated[int, Ge(1)] = 3
    scheduler: Scheduler = "fifo"
    limit: Annotated[float, Gt(0)] = 3600.0
    """The time limit of a hybrid job's requests, by which the scheduler plans."""
    keeps_agents: bool = False
    """Whether a node that was given back need not start anew."""
    delays: Delays = Delays()
    waits: Mapping[Annotated[int, Ge(1)], Seconds] = field(default_factory=dict)
    """Seconds that a request waits in the queue, by the nodes held once it is granted: the entry
    of the next larger number is used, or the last one. For sites whose queue is not simulated."""
    losses: tuple[Loss, ...] = ()
    failures: Failures | None = None
    partitions: tuple[Partition, ...] = ()
    """If there are any, they have the nodes and the background."""
    qpu: QpuModel = QpuModel()
    service: ServiceModel | None = None
    """What shares the QPUs; without, each has a queue of its own."""
    power: Power = Power()
    background: Background = field(default_factory=Background)
    hybrid: Mix = Mix()
    strategies: Mapping[str, Mapping[str, str | float | bool]] = field(default_factory=dict)
    """Options of strategies by their names, as of `qtide run`: malleable's expand_timeout."""

    __pydantic_config__ = STRICT

    def parts(self) -> tuple[SiteModel, ...]:
        """Each partition as a site of its own; the site itself if it has none."""
        return tuple(self._part(each) for each in self.partitions) or (self,)

    @property
    def all_nodes(self) -> int:
        """The nodes of all partitions."""
        return sum(part.nodes for part in self.parts())

    def part(self, name: str) -> SiteModel:
        """The partition of that name; the first one, if none is named."""
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
        """Seconds that a request waits in the queue that leads to `nodes` nodes held."""
        larger = [number for number in self.waits if number >= nodes]
        return self.waits[min(larger) if larger else max(self.waits)] if self.waits else 0.0

    @property
    def is_batch(self) -> bool:
        """Whether other users' jobs, or backfilling, need the batch system's own queue."""
        others = self.background.trace is not None or self.background.generate is not None
        return others or self.scheduler == "easy"


def read_site(file: Path) -> SiteModel:
    """The site that a file describes."""
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
    """The site that a table describes; the path of a trace counts from the file's own."""
    from pydantic import TypeAdapter, ValidationError  # heavy

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
    """What pydantic found, in our words where its own are not clear."""
    if error["type"] == "unexpected_keyword_argument":
        return "there is no such key"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[0].lower() + text[1:]


def _beside(file: Path, background: Background) -> Background:
    """A trace is found beside the file that names it."""
    if background.trace is None:
        return background
    return replace(background, trace=str(file.parent / background.trace))


def mistakes(model: SiteModel, table: dict[str, Any]) -> Iterator[str]:
    """All mistakes of a site file that its types do not show."""
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
