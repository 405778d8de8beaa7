"""Jobs and sites for tests of the twin."""

from __future__ import annotations

from dataclasses import replace

from qtide.backends.models.background import Background, Generator
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import SiteModel
from qtide.core.ledger import Interval
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

BUSY = SiteModel(
    nodes=32,
    scheduler="easy",
    qpu=QpuModel(number=2),
    background=Background(generate=Generator(jobs=600, days=0.4, largest=32, mean_run=3000)),
)


def loop(rounds: int, classical: float, quantum: float, submit: float = 0.0) -> HybridJob:
    """Quantum, then classical, again and again."""
    return HybridJob((HybridStep(quantum=quantum), HybridStep((classical,))) * rounds, submit, 3)


def wide(submit: float = 0.0) -> HybridJob:
    """As the published job, on three nodes."""
    steps = (HybridStep((70.0, 5.0, 1.0)), HybridStep(quantum=30.0), HybridStep((50.0,)))
    return HybridJob(steps * 3, submit, 3)


def played(model: SiteModel, setup: StrategySetup, jobs: list[HybridJob]) -> list[list[Interval]]:
    """The ledgers of all jobs, in the order in which they ended."""
    ledgers: list[list[Interval]] = []
    Simulation(model, setup, lambda _, spans: ledgers.append(spans)).run(jobs)
    return ledgers


def alone(model: SiteModel) -> SiteModel:
    """The same site without other users."""
    return replace(model, background=Background())
