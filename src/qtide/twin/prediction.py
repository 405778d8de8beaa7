"""Prediction of a program from its earlier runs: no task of it is called again."""

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
    """What is to be predicted."""

    strategy: str
    jobs: int = 1
    nodes: int = 1
    """The most nodes that a job may hold."""
    site_nodes: int = 1
    vqpus: int = 1


@dataclass(frozen=True)
class Prediction:
    """The expected seconds and node-seconds of all jobs together.

    Low and high follow from the uncertainty of the delays and of the runs' classical times.
    """

    case: PredictionCase
    wall: Range
    node_seconds: Range


def predict(ledgers: Sequence[Sequence[Interval]], case: PredictionCase) -> Prediction:
    """Play the newest run's job, `case.jobs` times at once, on the site that all runs show."""
    found = calibrate(ledgers)
    spread = _spread(ledgers)
    played = [_played(ledgers[-1], found, case, side, 1 + side * spread) for side in (-1, 0, 1)]
    walls, nodes = zip(*played, strict=True)
    return Prediction(case, Range.of(walls), Range.of(nodes))


def _spread(ledgers: Sequence[Sequence[Interval]]) -> float:
    """By which share the classical time of the runs differs at most from that of the newest."""
    times = [job_of(spans, 1).classical for spans in ledgers]
    return max(abs(each / times[-1] - 1) for each in times) if times[-1] else 0.0


def _played(
    spans: Sequence[Interval],
    found: Calibration,
    case: PredictionCase,
    side: int,
    factor: float,
) -> tuple[float, float]:
    """Seconds until all jobs have ended, and their node-seconds, with delays on one side."""
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
