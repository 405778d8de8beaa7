"""Advice on strategies: simulates a job under each one and recommends the cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.clusters.simulated import is_site, site_model
from qtide.backends.models.background import Background
from qtide.backends.models.site_model import Billing, SiteModel
from qtide.core.errors import QtideError
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.core.options import Option, chosen, number_from
from qtide.core.resources import BillingWeights, nodes_filled
from qtide.runs.earlier import earlier_runs, is_done
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec
from qtide.runs.start import Advised
from qtide.strategies.elastic import ElasticOptions
from qtide.strategies.strategy import strategy_names
from qtide.twin.calibration import calibrate, job_of, kept_agents, kind_name
from qtide.twin.simulation import HybridJob, Simulation, StrategySetup, Teach, lessons, untaught

if TYPE_CHECKING:
    from qtide.backends.models.trace import Trace

SPREAD = (0.5, 1.0, 2.0)
"""Factors applied to the expected wait: real waits seldom match the expectation."""
SAME = 1.01
"""Strategies whose costs differ by less than this factor tie; the simpler one is advised."""


@dataclass(frozen=True)
class Prices:
    """Prices of a second of wall time, a node-second, and a second of holding a virtual QPU."""

    second: float = 1.0
    node: float = 1.0
    qpu: float = 10.0

    def cost(self, wall: float, node_seconds: float, qpu_hold: float) -> float:
        """Return the weighted sum of time and resources."""
        return self.second * wall + self.node * node_seconds + self.qpu * qpu_hold

    def words(self) -> str:
        """Describe the prices for people."""
        if not self.second:
            return "only node-seconds count"
        return f"a node-second costs {self.node:g} s of the job, a second of the QPU {self.qpu:g} s"


@dataclass(frozen=True)
class AdviceOptions:
    """The prices by which `auto` weighs a strategy's resources."""

    node_price: Annotated[
        float | None,
        Option(
            "What a node-second costs, in seconds of the job.  [default: as --time-weight or "
            "--favour says, or 1]",
            number_from(0),
        ),
    ] = None
    qpu_price: Annotated[
        float, Option("What a second of the QPU costs, in seconds of the job.", number_from(0))
    ] = 10.0

    def prices(self, time_weight: float) -> Prices:
        """The prices; where none of a node-second is given, as the user weighs time."""
        if self.node_price is not None:
            return Prices(node=self.node_price, qpu=self.qpu_price)
        if not time_weight:
            return Prices(0.0, 1.0, 0.0)
        return Prices(node=1 / time_weight - 1, qpu=self.qpu_price)


@dataclass(frozen=True)
class Range:
    """An expected value with its minimum and maximum over shorter and longer waits."""

    low: float
    expected: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Range:
        """Build from the values for short, expected and long waits, or the expected wait alone."""
        return Range(min(values), values[len(values) // 2], max(values))


@dataclass(frozen=True)
class Expected:
    """Expected time and resources of a job under a strategy."""

    strategy: str
    wall: Range
    node_seconds: Range
    """Node-seconds; if the site has billing weights, as many as cost what it charges."""
    qpu_hold: Range

    def cost(self, prices: Prices) -> float:
        """Return the weighted sum of time and resources."""
        return prices.cost(self.wall.expected, self.node_seconds.expected, self.qpu_hold.expected)


@dataclass(frozen=True)
class Advice:
    """The expectation for every strategy, the advised one, and the reason."""

    expected: tuple[Expected, ...]
    strategy: str
    why: str


QueueWaits = Mapping[int, float]
"""Queue wait of a request in seconds, by the number of nodes the job then holds."""


@dataclass(frozen=True)
class Arrival:
    """Number of identical jobs that arrive at once, and of virtual QPUs they share."""

    jobs: int = 1
    vqpus: int = 1
    taught: bool = False
    """Whether they begin with what an earlier run of their program has learnt."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the strategies, by name."""


def advise(
    job: HybridJob,
    site: SiteModel,
    waits: QueueWaits = {},  # noqa: B006 - never changed
    prices: Prices = Prices(),
    names: Sequence[str] = (),
    spread: Sequence[float] = SPREAD,
    arrival: Arrival = Arrival(),
) -> Advice:
    """Advise on a job whose requests wait in the site's own queue or, without one, for `waits`.

    Compare the strategies in `names`, or all of them if it is empty.
    """
    chosen = [name for name in strategy_names() if not names or name in names]
    if site.part("").is_batch:
        found = _in_queue(job, site, chosen, arrival, prices)
    else:
        found = tuple(_with_waits(job, site, waits, name, spread, arrival) for name in chosen)
    least = min(each.cost(prices) for each in found)
    good = [each for each in found if each.cost(prices) <= SAME * least]
    return Advice(found, good[0].strategy, _why(good[0], found, prices))


@dataclass(frozen=True)
class MapCell:
    """The advised strategy at one point of the map."""

    strategy: str
    margin: float
    """Extra cost of the runner-up, as a fraction of the advised strategy's cost."""


def strategy_map(
    job: HybridJob,
    site: SiteModel,
    ratios: Sequence[float],
    waits: Sequence[float],
    prices: Prices = Prices(),
    names: Sequence[str] = (),
) -> list[list[MapCell]]:
    """Map the advised strategy: rows by wait for nodes, columns by quantum/classical ratio."""
    jobs = [with_ratio(job, ratio) for ratio in ratios]
    quiet = replace(site.part(""), scheduler="fifo", background=Background())

    def cell(job: HybridJob, wait: float) -> MapCell:
        advice = advise(job, quiet, {1: wait}, prices, names, spread=(1.0,))
        costs = {each.strategy: each.cost(prices) for each in advice.expected}
        own = costs.pop(advice.strategy)
        margin = max(0.0, min(costs.values()) / own - 1) if costs and own else 0.0
        return MapCell(advice.strategy, margin)

    return [[cell(each, wait) for each in jobs] for wait in waits]


def with_ratio(job: HybridJob, ratio: float) -> HybridJob:
    """Return the job with its quantum time set to `ratio` times its classical time."""
    number = sum(step.quantum is not None for step in job.steps) or 1
    seconds = ratio * job.classical / number
    steps = [replace(s, quantum=seconds) if s.quantum is not None else s for s in job.steps]
    return replace(job, steps=tuple(steps))


def _with_waits(
    job: HybridJob,
    site: SiteModel,
    waits: QueueWaits,
    name: str,
    spread: Sequence[float],
    arrival: Arrival,
) -> Expected:
    """Expectation for jobs whose requests wait for known times, scaled by each spread factor."""
    played = []
    for factor in spread:
        scaled = {nodes: factor * wait for nodes, wait in (waits or site.waits).items()}
        model = replace(site, waits=scaled)
        jobs = [job] * arrival.jobs
        teach = lessons(job, model) if arrival.taught else untaught
        played.append(_means(_played(jobs, model, name, arrival, teach=teach)))
    walls, nodes, holds = zip(*played, strict=True)
    return Expected(name, Range.of(walls), Range.of(nodes), Range.of(holds))


MOMENTS = 16
"""Arrival times to play first at a site with its own queue."""
MOST_MOMENTS = 64
"""Arrival times to play if the cheapest strategy is still uncertain."""
FIRST, LAST = 0.15, 0.85
"""The arrival times are between these shares of the workload's submission period."""
WARM_UP = 20_000
"""Number of other users' jobs to play before each arrival."""
SURE = 2.0
"""Standard errors by which the cheapest strategy has to beat a rival."""

Usage = tuple[float, float, float]
"""A job's wall seconds, what it is charged, and seconds of holding a virtual QPU."""


def _in_queue(
    job: HybridJob, site: SiteModel, names: Sequence[str], arrival: Arrival, prices: Prices
) -> tuple[Expected, ...]:
    """Expectation for jobs in the site's own queue, over many moments of its workload.

    Each moment is a simulation of its own, since waits may be longer than the time to the next.
    All strategies are played at the same moments, more of them until the cheapest one is certain.
    """
    others = [list(part.background.chunks(part.nodes, part.cores)) for part in site.parts()]
    last = max((float(c.submit[-1]) for chunks in others for c in chunks if len(c)), default=0.0)
    most = MOST_MOMENTS if last else 1
    found: dict[str, list[Usage]] = {name: [] for name in names}
    for number in range(most):
        moment = last * (FIRST + (LAST - FIRST) * _evenly(number))
        jobs = [replace(job, submit=moment)] * arrival.jobs
        traces = [_before(moment, chunks) for chunks in others]
        for name in names:
            found[name].append(_means(_played(jobs, site, name, arrival, traces)))
        if (number + 1) % MOMENTS == 0 and _is_certain(list(found.values()), prices):
            break
    return tuple(_over_moments(name, usages) for name, usages in found.items())


def _evenly(number: int) -> float:
    """Return the `number`-th of points that fill 0 to 1 ever more evenly (van der Corput)."""
    return int(f"{number:b}"[::-1], 2) / (1 << number.bit_length())


def _before(moment: float, chunks: Sequence[Trace]) -> list[Trace]:
    """Return the background without jobs that are long over when a job arrives at `moment`."""
    earlier = sum(int((chunk.submit < moment).sum()) for chunk in chunks)
    left_out, kept = max(0, earlier - WARM_UP), []
    for chunk in chunks:
        kept.append(chunk.part(slice(min(left_out, len(chunk)), None)))
        left_out -= min(left_out, len(chunk))
    return kept


def _is_certain(found: Sequence[Sequence[Usage]], prices: Prices) -> bool:
    """Whether no rival of the cheapest strategy may be cheaper by more than a tie."""
    costs = [[prices.cost(*usage) for usage in usages] for usages in found]
    best = min(costs, key=fmean)
    for rival in costs:
        apart = [other - own for other, own in zip(rival, best, strict=True)]
        error = SURE * stdev(apart) / sqrt(len(apart))
        if fmean(apart) < error and error > (SAME - 1) * fmean(best):
            return False
    return True


def _over_moments(name: str, usages: Sequence[Usage]) -> Expected:
    ranges = [Range(min(each), fmean(each), max(each)) for each in zip(*usages, strict=True)]
    return Expected(name, *ranges)


def _played(
    jobs: Sequence[HybridJob],
    model: SiteModel,
    name: str,
    arrival: Arrival,
    others: Sequence[Iterable[Trace]] | None = None,
    teach: Teach = untaught,
) -> list[Usage]:
    """Simulate, with the background of each partition; return what each job used."""
    found: list[Usage] = []

    def ended(_: HybridJob, spans: list[Interval]) -> None:
        metrics = measure(spans)
        found.append((metrics.total, metrics.charged, metrics.slots_held))

    setup = StrategySetup(name, arrival.vqpus, arrival.options)
    Simulation(model, setup, ended, others=others, teach=teach).run(jobs)
    return found


def _means(found: Sequence[Usage]) -> Usage:
    wall, nodes, hold = (fmean(each) for each in zip(*found, strict=True))
    return wall, nodes, hold


def _why(best: Expected, found: Sequence[Expected], prices: Prices) -> str:
    others = [each for each in found if each.strategy != best.strategy]
    if not others:
        return "no other strategy was compared"
    rival = min(others, key=lambda each: each.cost(prices))
    if rival.cost(prices) <= SAME * best.cost(prices) <= SAME**2 * rival.cost(prices):
        return f"it is as good as {rival.strategy}, and simpler"
    parts = []
    for what, one, other in (
        ("wall time", best.wall, rival.wall),
        ("node-seconds", best.node_seconds, rival.node_seconds),
        ("seconds of the QPU", best.qpu_hold, rival.qpu_hold),
    ):
        if other.expected:
            parts.append(f"{one.expected / other.expected:.0%} of its {what}")
    return f"compared with {rival.strategy}, the next best, it takes {', '.join(parts)}"


PATIENCE = 2.0
"""Seconds to wait for a service's answer about its queue."""


@dataclass(frozen=True)
class QueueState:
    """Current waits, in seconds of the run's clock; None if unknown."""

    nodes: QueueWaits | None = None
    """Seconds a request waits, by its number of nodes."""
    payload: float | None = None
    """Seconds a payload waits for the QPU."""
    words: tuple[str, ...] = ()
    """Sentences that name the sources of these values."""


def choose(spec: Spec, runs: Path) -> Advised:
    """Choose the strategy for a run that is about to start; this is the adviser `auto`."""
    known = earlier_runs(spec, RunFolder.all(runs))
    earlier = next((run for run in known if is_done(run) and not run.is_warm_up), None)
    if earlier is None:
        return Advised(Spec("").strategy, f"no earlier run of {spec.program} is known")
    spans = [span for span in earlier.intervals() if not span.open_ended]
    job = job_of(spans, 1)
    calibrated = calibrate([spans], keeps_agents=kept_agents(earlier.spec))
    job = replace(job, nodes=spec.nodes or _widest(job, calibrated.site(1), spec))
    now = present(spec, job)
    weight = chosen(ElasticOptions, spec.options).weight
    prices = chosen(AdviceOptions, spec.options).prices(weight)
    site = _site(spec, spans, calibrated.site(job.nodes), now)
    if billing := spec.options.get("billing"):
        site = charging(site, BillingWeights.parse(billing))
    arrival = Arrival(taught=not is_virtual(spec), options=spec.options)
    advice = advise(_on_kinds_of(site, job), site, now.nodes or {}, prices, arrival=arrival)
    words = (f"judged by the run {earlier.path}", *now.words, advice.why, prices.words())
    return Advised(advice.strategy, "; ".join(words))


def _widest(job: HybridJob, site: SiteModel, spec: Spec) -> int:
    """Return the most nodes of one kind that a step's tasks fill, and that the cluster has."""
    kinds = {kind.name: kind for kind, _ in site.kind_parts()}
    found = [1]
    for step in job.steps:
        kind = kinds.get(step.needs.kind or "", site.kind)
        found.append(nodes_filled([kind.share(step.needs)] * len(step.tasks), len(step.tasks)))
    cluster, _ = cluster_kind(spec.cluster)
    return min(max(found), cluster.size(spec.setting()) or max(found))


def _on_kinds_of(site: SiteModel, job: HybridJob) -> HybridJob:
    """Return the job with the site's names of the kinds of nodes, which are known by their size."""
    names = {kind_name((kind.cores, kind.gpus)): kind.name for kind, _ in site.kind_parts()}
    steps = [
        replace(step, needs=replace(step.needs, kind=names.get(step.needs.kind or "")))
        for step in job.steps
    ]
    return replace(job, steps=tuple(steps))


def present(spec: Spec, job: HybridJob) -> QueueState:
    """Ask the cluster and the service for their current queue waits."""
    kind, _ = cluster_kind(spec.cluster)
    setting = spec.setting()
    try:
        queues = {nodes: kind.queue(setting, nodes) for nodes in sorted({1, job.nodes})}
    except QtideError:  # the run itself reports what is wrong
        queues = {}
    known = {nodes: queue for nodes, queue in queues.items() if queue is not None}
    payload, sentences = _at_service(spec)
    words = [*([known[max(known)].words] if known else []), *sentences]
    waits = {nodes: queue.wait / spec.time_scale for nodes, queue in known.items()}
    return QueueState(waits or None, payload, tuple(words))


def _site(spec: Spec, spans: Sequence[Interval], site: SiteModel, now: QueueState) -> SiteModel:
    """Return the site of the site file, or the earlier run's with the current waits."""
    if spec.cluster.partition(":")[0] == "simulated" and is_site(spec.setting().argument):
        return site_model(spec.setting())
    if now.nodes is not None:
        waits = [span.seconds for span in spans if span.what == "wait" and span.lane == "nodes"]
        site = replace(site, delays=replace(site.delays, grant=min(waits, default=0.0)))
    if now.payload is not None:
        site = replace(site, qpu=replace(site.qpu, wait=now.payload))
    return site


def charging(site: SiteModel, weights: BillingWeights) -> SiteModel:
    """Return the site with these weights, which a user says in place of its own."""
    kinds = [kind for kind, _ in site.kind_parts()]
    rates = {each.name: weights.rate(each.cores, each.gpus, each.memory) for each in kinds}
    return replace(site, billing=Billing(kinds=rates))


def _at_service(spec: Spec) -> tuple[float | None, list[str]]:
    """Current wait of a payload if a service provides the QPU, with sentences about it."""
    parts = urlsplit(spec.qpu)
    if parts.scheme not in ("http", "https"):
        return None, []
    name = parts.path.strip("/")
    try:
        devices = Client(f"{parts.scheme}://{parts.netloc}", patience=PATIENCE).devices()
    except ServiceFailed:  # the run itself reports what is wrong
        return None, []
    waits = [each["expected_wait"] for each in devices if name in ("", each["name"])]
    known = [wait for wait in waits if wait is not None]
    if not known:
        return None, ["the service does not say when the QPU will be available"]
    return min(known) / spec.time_scale, [f"payloads wait {min(known):.0f} s for the QPU"]


choose.Options = AdviceOptions  # type: ignore[attr-defined]  # every plug-in has these
