"""Which strategy for a job: every strategy is played in virtual time, and the cheapest one wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from qtide.backends.client.client import Client, ServiceFailed
from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.models.site_model import SiteModel
from qtide.core.errors import QtideError
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.core.options import Option, chosen, number_from
from qtide.runs.earlier import earlier_runs, is_done
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.runs.start import Advised
from qtide.strategies.strategy import strategy_names
from qtide.twin.calibrate import calibrate, job_of
from qtide.twin.play import HybridJob, Simulation, StrategyOptions

SPREAD = (0.5, 1.0, 2.0)
"""Waits are seldom as long as expected: they may be half of that, or twice."""
SAME = 1.01
"""Strategies whose costs differ by less are equally good: the simpler one is advised."""


@dataclass(frozen=True)
class Prices:
    """What counts: a second of the job, of a node, and of a QPU that it holds."""

    second: float = 1.0
    node: float = 1.0
    qpu: float = 10.0

    def words(self) -> str:
        """For people."""
        return f"a node-second costs {self.node:g} s of the job, a second of the QPU {self.qpu:g} s"


@dataclass(frozen=True)
class AdviceOptions:
    """How `auto` weighs what a strategy takes."""

    node_price: Annotated[
        float, Option("What a node-second costs, in seconds of the job.", number_from(0))
    ] = 1.0
    qpu_price: Annotated[
        float, Option("What a second of the QPU costs, in seconds of the job.", number_from(0))
    ] = 10.0


@dataclass(frozen=True)
class Range:
    """The expected value, and the least and the most that waits may make of it."""

    low: float
    expected: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Range:
        """From the values for short, expected and long waits, or for the expected one alone."""
        return Range(min(values), values[len(values) // 2], max(values))


@dataclass(frozen=True)
class Expected:
    """What a job takes under a strategy."""

    strategy: str
    wall: Range
    node_seconds: Range
    qpu_hold: Range

    def cost(self, prices: Prices) -> float:
        """All of it, weighed."""
        return (
            prices.second * self.wall.expected
            + prices.node * self.node_seconds.expected
            + prices.qpu * self.qpu_hold.expected
        )


@dataclass(frozen=True)
class Advice:
    """All strategies for a job, the advised one, and why."""

    expected: tuple[Expected, ...]
    strategy: str
    why: str


def advise(
    job: HybridJob,
    site: SiteModel,
    wait: float,
    prices: Prices = Prices(),
    names: Sequence[str] = (),
    spread: Sequence[float] = SPREAD,
) -> Advice:
    """Advise on a job whose every request for nodes waits for about `wait` seconds.

    Only the strategies that are named are looked at; all of them, if none is.
    """
    chosen = [name for name in strategy_names() if not names or name in names]
    found = tuple(_expected(job, site, wait, name, spread) for name in chosen)
    least = min(each.cost(prices) for each in found)
    good = [each for each in found if each.cost(prices) <= SAME * least]
    return Advice(found, good[0].strategy, _why(good[0], found, prices))


def flips(
    job: HybridJob,
    site: SiteModel,
    ratios: Sequence[float],
    waits: Sequence[float],
    prices: Prices = Prices(),
    names: Sequence[str] = (),
) -> list[list[str]]:
    """The advised strategy by the wait for nodes (rows) and by quantum to classical time."""
    jobs = [with_ratio(job, ratio) for ratio in ratios]

    def advised(job: HybridJob, wait: float) -> str:
        return advise(job, site, wait, prices, names, spread=(1.0,)).strategy

    return [[advised(each, wait) for each in jobs] for wait in waits]


def with_ratio(job: HybridJob, ratio: float) -> HybridJob:
    """The same job with so much quantum time for its classical time."""
    classical = sum(max(step.tasks, default=0.0) for step in job.steps)
    number = sum(step.quantum is not None for step in job.steps) or 1
    seconds = ratio * classical / number
    steps = [replace(s, quantum=seconds) if s.quantum is not None else s for s in job.steps]
    return replace(job, steps=tuple(steps))


def _expected(
    job: HybridJob, site: SiteModel, wait: float, name: str, spread: Sequence[float]
) -> Expected:
    played = [_played(job, site, factor * wait, name) for factor in spread]
    walls, nodes, holds = zip(*played, strict=True)
    return Expected(name, Range.of(walls), Range.of(nodes), Range.of(holds))


def _played(job: HybridJob, site: SiteModel, wait: float, name: str) -> tuple[float, float, float]:
    """Wall seconds, node-seconds and seconds that a virtual QPU is held."""
    delays = replace(site.delays, grant=site.delays.grant + wait)
    found: list[list[Interval]] = []
    model = replace(site, delays=delays)
    Simulation(model, StrategyOptions(name), lambda _, spans: found.append(spans)).play(
        [replace(job, submit=0.0)]
    )
    metrics = measure(found[0])
    return metrics.total, metrics.nodes_held, metrics.slots_held


def _why(best: Expected, found: Sequence[Expected], prices: Prices) -> str:
    others = [each for each in found if each.strategy != best.strategy]
    if not others:
        return "no other one was looked at"
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
    return f"beside {rival.strategy}, the next best, it takes {', '.join(parts)}"


PATIENCE = 2.0
"""Seconds that a service may take to say how long its queues are."""


@dataclass(frozen=True)
class QueueState:
    """How long a job waits now for nodes and, per payload, for the QPU: seconds of the run's clock.

    None if nobody knows.
    """

    nodes: float | None = None
    payload: float | None = None
    words: tuple[str, ...] = ()
    """Who says so."""


def choose(spec: Spec, runs: Path) -> Advised:
    """The best strategy for a run that is about to start."""
    known = earlier_runs(spec, RunFolder.all(runs))
    earlier = next((run for run in known if is_done(run) and not run.is_warm_up), None)
    if earlier is None:
        return Advised(Spec("").strategy, f"no earlier run of {spec.program} is known")
    spans = [span for span in earlier.intervals() if not span.open_ended]
    job = job_of(spans, 1)
    job = replace(job, nodes=spec.nodes or max([1, *(len(step.tasks) for step in job.steps)]))
    now = present(spec, job)
    options = chosen(AdviceOptions, spec.options)
    prices = Prices(node=options.node_price, qpu=options.qpu_price)
    advice = advise(job, _site(spans, job, now), now.nodes or 0.0, prices)
    words = (f"by {earlier.name}", *now.words, advice.why, prices.words())
    return Advised(advice.strategy, "; ".join(words))


def present(spec: Spec, job: HybridJob) -> QueueState:
    """What the cluster and the service say about their queues now."""
    kind, _ = cluster_kind(spec.cluster)
    setting = spec.setting()
    try:
        queue = kind.queue(setting, job.nodes)
    except QtideError:  # the run itself will say what is wrong
        queue = None
    payload, said = _at_service(spec)
    words = [*([queue.words] if queue else []), *said]
    wait = queue.wait / spec.time_scale if queue else None
    return QueueState(wait, payload, tuple(words))


def _site(spans: Sequence[Interval], job: HybridJob, now: QueueState) -> SiteModel:
    """The site of the earlier run; what is known of the present replaces what was then."""
    site = calibrate([spans]).site(job.nodes)
    if now.nodes is not None:
        waits = [span.seconds for span in spans if span.what == "wait" and span.lane == "nodes"]
        site = replace(site, delays=replace(site.delays, grant=min(waits, default=0.0)))
    if now.payload is not None:
        site = replace(site, qpu=replace(site.qpu, wait=now.payload))
    return site


def _at_service(spec: Spec) -> tuple[float | None, list[str]]:
    """How long a payload waits there now, if the QPU is a service's."""
    parts = urlsplit(spec.qpu)
    if parts.scheme not in ("http", "https"):
        return None, []
    name = parts.path.strip("/")
    try:
        devices = Client(f"{parts.scheme}://{parts.netloc}", patience=PATIENCE).devices()
    except ServiceFailed:  # the run itself will say what is wrong
        return None, []
    waits = [each["expected_wait"] for each in devices if name in ("", each["name"])]
    known = [wait for wait in waits if wait is not None]
    if not known:
        return None, ["the service does not say when the QPU is back"]
    return min(known) / spec.time_scale, [f"payloads wait {min(known):.0f} s for the QPU"]


choose.Options = AdviceOptions  # type: ignore[attr-defined]  # as every plug-in has them
