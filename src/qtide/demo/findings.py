"""What a demonstration has found, in three sentences that hold for its own measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qtide.errors import QtideError
from qtide.ledger.metrics import Metrics
from qtide.report.number import brief
from qtide.report.table import BASE
from qtide.runs.comparison import Case

OURS = "elastic"
Figures = dict[str, Metrics]
"""The metrics by strategy, or by the way of sharing."""


def findings(strategies: Sequence[Case], sharing: Sequence[Case]) -> tuple[str, str, str]:
    """Strategies, sharing, and whether the results agree."""
    return (
        about_strategies(_figures(strategies)),
        about_sharing(_figures(sharing)),
        about_results(_runs(strategies), _score(strategies), _runs(sharing), _score(sharing)),
    )


def about_strategies(figures: Figures) -> str:
    """What elastic took, relative to static and to the best of the others."""
    ours, base = figures[OURS], figures[BASE]
    others = {name: each for name, each in figures.items() if name != OURS}
    fastest, frugal = _least(others, lambda m: m.total), _least(others, lambda m: m.nodes_held)
    return (
        f"Strategies: {OURS} took {_times(ours.total, base.total)} the time of {BASE} and held "
        f"{_times(ours.nodes_held, base.nodes_held)} its node-seconds; it took "
        f"{_times(ours.total, others[fastest].total)} the time of the fastest other strategy, "
        f"{fastest}, and held {_times(ours.nodes_held, others[frugal].nodes_held)} the "
        f"node-seconds of the thriftiest other one, {frugal}."
    )


def about_sharing(figures: Figures) -> str:
    """How much sooner all jobs were done, and how busy the device was."""
    alone, shared = figures["exclusive"], figures["shared"]
    return (
        f"Sharing: {len(shared.jobs)} jobs that shared one QPU through the service were done "
        f"after {brief(shared.total)} s, and after {brief(alone.total)} s when each had it to "
        f"itself in turn ({_compared(alone.total, shared.total)}); the QPU was busy for "
        f"{shared.qpu_occupancy:.0%} of the time instead of {alone.qpu_occupancy:.0%}."
    )


def about_results(first: int, silhouette: float, second: int, other: float) -> str:
    """That only times differ: a comparison whose runs disagree ends with an error before this."""
    return (
        f"Results: all {first} runs of the first part found the same clusters (silhouette "
        f"{silhouette:.3f}), and so did all {second} of the second ({other:.3f}); only when and "
        "where the work was done made the difference."
    )


def _compared(before: float, after: float) -> str:
    if after <= 0 or before <= 0:
        return "no time was measured"
    ratio = before / after
    return f"{ratio:.2f} × as fast" if ratio >= 1 else f"{1 / ratio:.2f} × as long"


def _times(part: float, whole: float) -> str:
    return f"{part / whole:.2f} ×" if whole > 0 else "more than"


def _least(figures: Figures, of: Callable[[Metrics], float]) -> str:
    return min(figures, key=lambda name: of(figures[name]))


def _figures(cases: Sequence[Case]) -> Figures:
    return {case.strategy: case.panel().metrics for case in cases}


def _runs(cases: Sequence[Case]) -> int:
    return sum(len(case.runs) for case in cases)


def _score(cases: Sequence[Case]) -> float:
    """The silhouette that all runs of these cases found."""
    end = cases[0].runs[0].end
    if end is None:
        raise QtideError(f"{cases[0].runs[0].path} has no result")
    return float(end["value"]["silhouette"])
