"""The published experiments as calibrations: two sites, and the clustering job as it ran there.

Rocco et al., "Dynamic Solutions for Hybrid Quantum-HPC Resource Allocation" (QCE 2025,
10.1109/QCE65121.2025.10289). Qluster is calibrated on its runs of single jobs alone, so what the
twin says of two jobs is predicted, but for two things that single jobs do not show. How long a node
takes to be free again is hidden there by the delay of the next grant, so it is between 0 and that:
half of it is taken. And the second job comes a moment later than the first; any gap from 3 s on is
the same. Leonardo's numbers are of single jobs: all are fitted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Delays, SiteModel
from qtide.core.ledger import Interval
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

NODES = 3
TABLES = json.loads(Path(__file__).with_suffix(".json").read_text())
"""Every published number, by site."""


@dataclass(frozen=True)
class PublishedSite:
    """A site, and the phases of the clustering job on it, in seconds."""

    name: str
    site: SiteModel
    tasks: tuple[float, ...]
    """Hierarchical clustering, DBSCAN and k-means; on one node, they take their sum."""
    silhouettes: tuple[float, ...]
    """By iteration."""
    silhouette_nodes: int = 1
    """How many nodes a silhouette's own workflow step holds; it is charged for one."""
    short_wait: float = 0.0
    """Seconds that others' payloads are before one, in the experiment without quantum time."""

    def job(self, strategy: str, quantum: float, submit: float = 0.0) -> HybridJob:
        """The clustering job."""
        nodes = self.silhouette_nodes if strategy == "workflow" else 1
        steps = [
            step
            for seconds in self.silhouettes
            for step in (
                HybridStep(self.tasks),
                HybridStep(quantum=quantum),
                HybridStep((seconds,), nodes=nodes),
            )
        ]
        return HybridJob(tuple(steps), submit, NODES)

    def delay(self, quantum: float) -> float:
        """What a payload waits for its offload and for others' payloads before it."""
        return self.site.qpu.offload + (0.0 if quantum else self.short_wait)

    def shape(self, strategy: str, quantum: float) -> str:
        """The same job as a shape of the synthetic program, in TOML; payloads include delays."""
        delay = self.delay(quantum)
        lines = [f'title = "Clustering aggregation as published, on {self.name}"']
        for step in self.job(strategy, quantum).steps:
            lines.append("[[phase]]")
            if step.quantum is None:
                lines += [f"tasks = {list(step.tasks)}", f"nodes = {step.nodes}"]
            else:
                lines.append(f"quantum = {step.quantum + delay}")
        return "\n".join(lines) + "\n"

    def model(self, quantum: float) -> SiteModel:
        """The site in the experiment with so much quantum time per iteration."""
        wait = 0.0 if quantum else self.short_wait
        return replace(self.site, qpu=replace(self.site.qpu, wait=wait))


QLUSTER = PublishedSite(
    "qluster",
    SiteModel(
        nodes=NODES,
        delays=Delays(grant=3.56, start=0.6, reconfigure=1.7, turnaround=3.56 / 2),
        qpu=QpuModel(number=2, offload=3.59),
    ),
    tasks=(77.3, 3.5, 0.2),
    silhouettes=(51.8, 51.8, 60.0, 52.3),
    silhouette_nodes=NODES,
)
LEONARDO = PublishedSite(
    "leonardo",
    SiteModel(
        nodes=NODES,
        delays=Delays(grant=0.225, reconfigure=6.35),
        qpu=QpuModel(offload=27.7),
    ),
    tasks=(86.2, 5.0, 0.2),
    silhouettes=(47.8, 47.8, 47.8, 47.8),
    short_wait=41.5,
)
CALIBRATIONS = {each.name: each for each in (QLUSTER, LEONARDO)}


@dataclass(frozen=True)
class PublishedFigures:
    """What an experiment reports: seconds until all jobs have ended, and charged node-seconds."""

    wall: float
    usage: float


def predict(
    calibration: PublishedSite, strategy: str, jobs: int, quantum: float, stagger: float = 5.0
) -> PublishedFigures:
    """The twin of one cell of the published tables."""
    return figures(strategy, play(calibration, strategy, jobs, quantum, stagger))


def play(
    calibration: PublishedSite, strategy: str, jobs: int, quantum: float, stagger: float
) -> list[list[Interval]]:
    """Play jobs that are submitted one after the other; return what each did."""
    ledgers: list[list[Interval]] = []
    simulation = Simulation(
        calibration.model(quantum),
        StrategySetup(strategy, jobs),
        lambda _, spans: ledgers.append(spans),
    )
    simulation.run(calibration.job(strategy, quantum, stagger * n) for n in range(jobs))
    return ledgers


def figures(
    strategy: str, ledgers: Sequence[Sequence[Interval]], scale: float = 1.0
) -> PublishedFigures:
    """Count jobs that ran together as published, whether in virtual time or on a real Slurm.

    The wall time of two static jobs was published as the sum of both: the gap between does not
    count, nor does what each waited before it began. `scale` is that of the clock.
    """
    held = [[span for span in spans if span.what == "held"] for spans in ledgers]
    first = [min(span.start for span in spans) for spans in held]
    last = [max(span.end for span in spans if span.what == "run") for spans in ledgers]
    walls = [end - start for start, end in zip(first, last, strict=True)]
    wall = sum(walls) if strategy == "static" else max(last) - min(first)
    return PublishedFigures(wall, sum(charge(spans, scale) for spans in ledgers))


def charge(spans: Sequence[Interval], scale: float) -> float:
    """Node-seconds as published: a step that shares its nodes is charged for one of them.

    A node that starts does so in real time, whatever the clock: that counts as it is.
    """
    shared = [span for span in spans if span.what == "busy" and span.label == "shared"]
    starts = [span for span in spans if span.what == "starting"]
    total = 0.0
    for span in spans:
        if span.what == "held" and span.lane.startswith("node/"):
            starting = sum(each.seconds for each in starts if _within(each, span))
            nodes = NODES if any(_within(each, span) for each in shared) else 1
            total += (span.seconds - (1 - scale) * starting) / nodes
    return total


def _within(part: Interval, span: Interval) -> bool:
    return part.lane == span.lane and span.start <= part.start < span.end
