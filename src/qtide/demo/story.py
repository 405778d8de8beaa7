"""The demonstration: every strategy on the clustering, then one device for several jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qtide.demo.findings import findings
from qtide.errors import UsageError
from qtide.report.page import Group, write_report
from qtide.report.panel import Panel
from qtide.runs.comparison import Case, compare, notes, play_cases
from qtide.runs.driver import Tell
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.testing.service import LocalService

JOBS, SHARERS = 2, 3
"""How many jobs there are under each strategy, and how many share a device."""
EXCLUSIVE, SHARED = "exclusive", "shared"


def _clustering(points: int, rounds: int) -> list[str]:
    """HDBSCAN takes long, the other methods do not: as in the published experiment."""
    data = ["--blobs", f"{points}", "--configuration", "published", "--method", "hdbscan"]
    return [*data, "--threshold", "0.99", "--most", f"{rounds}"]


STRATEGIES = Spec(
    "clustering",
    _clustering(10_000, 3),
    cluster="local:3",
    qpu="neutral-atom",
    time_scale=0.01,
)
"""Quantum phases of two minutes, in a hundredth of the time; the classical work is real."""
SHARING = Spec(
    "clustering",
    _clustering(6_000, 6),
    strategy="static",
    cluster=f"local:{SHARERS}",
    nodes=1,
)
"""A job holds one node, and a virtual QPU, from its start to its end."""
DEVICE = """
[devices.annealer]
kind = "annealer"
profile = "annealer"
policy = "fair"
"""
Ended = Callable[[Case], None]


@dataclass(frozen=True)
class Story:
    """What was measured, what follows from it, and the page that shows it."""

    strategies: list[Case]
    sharing: list[Case]
    sentences: tuple[str, ...]
    notes: list[str]
    """What a reader needs to know about the figures."""
    page: Path

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "strategies": [case.as_dict() for case in self.strategies],
            "sharing": [case.as_dict() for case in self.sharing],
            "sentences": list(self.sentences),
            "notes": self.notes,
            "page": str(self.page),
        }


def require() -> None:
    """Refuse to begin without the packages that the demonstration uses."""
    for module in ("sklearn", "fastapi"):
        if find_spec(module) is None:
            raise UsageError(
                f"{module} is missing: the demonstration needs the extras clustering and serve; "
                "install them with pip install '.[clustering,serve]' in qtide's checkout"
            )


def play_story(folder: Path, tell: Tell, ended: Ended, announce: Callable[[str], None]) -> Story:
    """Play both parts, one after the other, and write the page."""
    announce("Two clustering jobs on three nodes and one QPU, under every strategy:")
    strategies = compare(
        folder / "strategies", STRATEGIES, strategy_names(), [JOBS], tell, ended, warm_up=True
    )
    announce("Three clustering jobs on one QPU, each alone in turn, then shared by the service:")
    sharing = share(folder / "sharing", tell, ended)
    sentences = findings(strategies, sharing)
    lines = [f"Strategies: {line}" for line in notes(strategies)]
    lines += [f"Sharing: {line}" for line in notes(sharing)]
    groups = [
        Group(JOBS, _panels(strategies), "Strategies: two jobs on three nodes and one QPU"),
        Group(SHARERS, _panels(sharing), "Sharing: three jobs on one QPU behind the service"),
    ]
    made = write_report(folder, "qtide on this computer", groups, lines, sentences)
    return Story(strategies, sharing, sentences, lines, made.page)


def share(folder: Path, tell: Tell, ended: Ended) -> list[Case]:
    """The same jobs on a device that each has to itself in turn, and that all share."""
    folder.mkdir(parents=True)
    service = LocalService(folder, DEVICE, "anonymous = true", bound=True)
    try:
        spec = replace(SHARING, qpu=f"{service.start().url}/annealer")
        cases = [_case(folder, spec, EXCLUSIVE, 1), _case(folder, spec, SHARED, SHARERS)]
        return play_cases(folder, cases, tell, ended, warm_up=spec)
    finally:
        service.stop()


def _case(folder: Path, spec: Spec, name: str, vqpus: int) -> Case:
    """Jobs that hold one of so many virtual QPUs from their start to their end."""
    spec = replace(spec, vqpus=vqpus)
    runs = (RunFolder.create(folder / name, f"job-{n}", spec) for n in range(1, SHARERS + 1))
    return Case(name, SHARERS, tuple(runs))


def _panels(cases: list[Case]) -> tuple[Panel, ...]:
    return tuple(case.panel() for case in cases)
