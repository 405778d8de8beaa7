"""The `qtide demo` demonstration: compare strategies, then sharing, and sum up the findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qtide.core.errors import QtideError, UsageError
from qtide.core.metrics import Metrics, Panel
from qtide.interfaces.report.run_report import Group, write_report
from qtide.interfaces.report.table import BASE, brief
from qtide.runs.comparison import Case, compare, notes, play_cases
from qtide.runs.driver import Tell
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.service.local_service import LocalService
from qtide.strategies.strategy import strategy_names

OURS = "elastic"
Figures = dict[str, Metrics]
"""Metrics by strategy or by sharing mode."""


def findings(strategies: Sequence[Case], sharing: Sequence[Case]) -> tuple[str, str, str]:
    """Sum up in one sentence each: strategies, sharing, and the results."""
    return (
        about_strategies(_figures(strategies)),
        about_sharing(_figures(sharing)),
        about_results(_runs(strategies), _score(strategies), _runs(sharing), _score(sharing)),
    )


def about_strategies(figures: Figures) -> str:
    """Compare elastic's time and node-seconds with static's and with the best of the others."""
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
    """Say how much sooner all jobs finished, and how busy the QPU was."""
    alone, shared = figures["exclusive"], figures["shared"]
    return (
        f"Sharing: {len(shared.jobs)} jobs that shared one QPU through the service were done "
        f"after {brief(shared.total)} s, and after {brief(alone.total)} s when each had it to "
        f"itself in turn ({_compared(alone.total, shared.total)}); the QPU was busy for "
        f"{shared.qpu_occupancy:.0%} of the time instead of {alone.qpu_occupancy:.0%}."
    )


def about_results(first: int, silhouette: float, second: int, other: float) -> str:
    """Say that only times differ; a comparison fails earlier if its runs disagree."""
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
    """Return the silhouette, which is the same in all runs of these cases."""
    end = cases[0].runs[0].end
    if end is None:
        raise QtideError(f"{cases[0].runs[0].path} has no result")
    return float(end["value"]["silhouette"])


JOBS, SHARERS = 2, 3
"""Jobs per strategy, and jobs that share a device."""
EXCLUSIVE, SHARED = "exclusive", "shared"


def _clustering(points: int, rounds: int) -> list[str]:
    """Job arguments; HDBSCAN is slow and the other methods fast, as in the published experiment."""
    data = ["--blobs", f"{points}", "--configuration", "published", "--method", "hdbscan"]
    return [*data, "--threshold", "0.99", "--most", f"{rounds}"]


STRATEGIES = Spec(
    "clustering",
    _clustering(10_000, 3),
    cluster="local:3",
    qpu="neutral-atom",
    time_scale=0.01,
)
"""Two-minute quantum phases, emulated 100 times faster; the classical work is real."""
SHARING = Spec(
    "clustering",
    _clustering(6_000, 6),
    strategy="static",
    cluster=f"local:{SHARERS}",
    nodes=1,
)
"""Each job holds one node and one virtual QPU from start to end."""
DEVICE = """
[devices.annealer]
kind = "annealer"
profile = "annealer"
policy = "fair"
"""
Ended = Callable[[Case], None]


@dataclass(frozen=True)
class Story:
    """The measurements, the findings, and the page that shows them."""

    strategies: list[Case]
    sharing: list[Case]
    sentences: tuple[str, ...]
    notes: list[str]
    """Remarks a reader needs to interpret the figures."""
    page: Path

    def as_dict(self) -> dict[str, Any]:
        """Return everything in a form that JSON can represent."""
        return {
            "strategies": [case.as_dict() for case in self.strategies],
            "sharing": [case.as_dict() for case in self.sharing],
            "sentences": list(self.sentences),
            "notes": self.notes,
            "page": str(self.page),
        }


def require() -> None:
    """Raise UsageError unless the packages that the demonstration needs are installed."""
    for module in ("sklearn", "fastapi"):
        if find_spec(module) is None:
            raise UsageError(
                f"{module} is missing: the demonstration needs the extras clustering and serve; "
                "install them with pip install '.[clustering,serve]' in qtide's checkout"
            )


def play_story(
    folder: Path,
    tell: Tell,
    ended: Ended,
    announce: Callable[[str], None],
    serving: Callable[[str], None] = lambda _: None,
) -> Story:
    """Run both parts in turn and write the page; `serving` gets the address of the live page."""
    announce("Two clustering jobs on three nodes and one QPU, under every strategy:")
    strategies = compare(
        folder / "strategies", STRATEGIES, strategy_names(), [JOBS], tell, ended, warm_up=True
    )
    announce("Three clustering jobs on one QPU, each alone in turn, then shared by the service:")
    sharing = share(folder / "sharing", tell, ended, serving)
    sentences = findings(strategies, sharing)
    lines = [f"Strategies: {line}" for line in notes(strategies)]
    lines += [f"Sharing: {line}" for line in notes(sharing)]
    groups = [
        Group(JOBS, _panels(strategies), "Strategies: two jobs on three nodes and one QPU"),
        Group(SHARERS, _panels(sharing), "Sharing: three jobs on one QPU behind the service"),
    ]
    made = write_report(folder, "qtide on this computer", groups, lines, sentences)
    return Story(strategies, sharing, sentences, lines, made.page)


def share(
    folder: Path, tell: Tell, ended: Ended, serving: Callable[[str], None] = lambda _: None
) -> list[Case]:
    """Run the same jobs twice: each alone on the device in turn, then all sharing it.

    `serving` gets the address of the service's page, which is there as long as this runs.
    """
    folder.mkdir(parents=True)
    service = LocalService(folder, DEVICE, "anonymous = true", bound=True)
    try:
        spec = replace(SHARING, qpu=f"{service.start().url}/annealer")
        serving(f"{service.url}/")
        cases = [_case(folder, spec, EXCLUSIVE, 1), _case(folder, spec, SHARED, SHARERS)]
        return play_cases(folder, cases, tell, ended, warm_up=spec)
    finally:
        service.stop()


def _case(folder: Path, spec: Spec, name: str, vqpus: int) -> Case:
    """A case whose jobs each hold one of `vqpus` virtual QPUs from start to end."""
    spec = replace(spec, vqpus=vqpus)
    runs = (RunFolder.create(folder / name, f"job-{n}", spec) for n in range(1, SHARERS + 1))
    return Case(name, SHARERS, tuple(runs))


def _panels(cases: list[Case]) -> tuple[Panel, ...]:
    return tuple(case.panel() for case in cases)
