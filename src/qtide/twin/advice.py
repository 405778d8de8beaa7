"""Which strategy for a job: every strategy is played in virtual time, and the cheapest one wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qtide.ledger.ledger import Interval
from qtide.ledger.metrics import measure
from qtide.models.site import SiteModel
from qtide.strategies.strategy import strategy_names
from qtide.twin.hybrid import HybridJob
from qtide.twin.play import Policy, Stage

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
    prices: Prices = Prices(),  # noqa: B008 - frozen
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
    prices: Prices = Prices(),  # noqa: B008 - frozen
    names: Sequence[str] = (),
) -> list[list[str]]:
    """The advised strategy by the wait for nodes (rows) and by quantum to classical time."""
    jobs = [with_ratio(job, ratio) for ratio in ratios]

    def advised(job: HybridJob, wait: float) -> str:
        return advise(job, site, wait, prices, names, spread=(1.0,)).strategy

    return [[advised(each, wait) for each in jobs] for wait in waits]


def with_ratio(job: HybridJob, ratio: float) -> HybridJob:
    """The same job with so much quantum time for its classical time."""
    classical = job.shortest - job.quantum
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
    Stage(model, Policy(name), lambda _, spans: found.append(spans)).play(
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
