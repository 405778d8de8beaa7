"""Predicts a program from its earlier runs, without running any of its tasks again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.twin.advice import Range
from qtide.twin.calibration import Calibration, Fitted, calibrate, job_of
from qtide.twin.simulation import Simulation, StrategySetup


@dataclass(frozen=True)
class PredictionCase:
    """The case to predict."""

    strategy: str
    jobs: int = 1
    nodes: int = 1
    """Maximum number of nodes per job."""
    site_nodes: int = 1
    vqpus: int = 1


@dataclass(frozen=True)
class Prediction:
    """Expected seconds and node-seconds of all jobs together.

    The ranges reflect the uncertainty of the delays and the spread of the runs' classical times.
    """

    case: PredictionCase
    wall: Range
    node_seconds: Range


def predict(ledgers: Sequence[Sequence[Interval]], case: PredictionCase) -> Prediction:
    """Simulate `case.jobs` copies of the newest run's job on the site calibrated to all runs."""
    found = calibrate(ledgers)
    spread = _spread(ledgers)
    played = [_played(ledgers[-1], found, case, side, 1 + side * spread) for side in (-1, 0, 1)]
    walls, nodes = zip(*played, strict=True)
    return Prediction(case, Range.of(walls), Range.of(nodes))


def _spread(ledgers: Sequence[Sequence[Interval]]) -> float:
    """Return the largest relative deviation of a run's classical time from the newest run's."""
    times = [job_of(spans, 1).classical for spans in ledgers]
    return max(abs(each / times[-1] - 1) for each in times) if times[-1] else 0.0


def _played(
    spans: Sequence[Interval],
    found: Calibration,
    case: PredictionCase,
    side: int,
    factor: float,
) -> tuple[float, float]:
    """Return the wall seconds and node-seconds of all jobs.

    `side` moves the delays within their uncertainty; `factor` scales the task times.
    """
    shifted = {
        name: Fitted(max(0.0, each.value + side * each.half), each.half, each.samples)
        for name, each in found.parameters.items()
    }
    site = replace(found, parameters=shifted).site(case.site_nodes)
    job = job_of(spans, case.nodes)
    steps = [replace(s, tasks=tuple(factor * each for each in s.tasks)) for s in job.steps]
    ledgers: list[list[Interval]] = []
    simulation = Simulation(
        site, StrategySetup(case.strategy, case.vqpus), lambda _, each: ledgers.append(each)
    )
    wall = simulation.run([replace(job, steps=tuple(steps))] * case.jobs)
    return wall, sum(measure(each).nodes_held for each in ledgers)
