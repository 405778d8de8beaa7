"""What a simulation counts while it runs: sums, so that no job is kept once it is over."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from qtide.ledger.ledger import Interval
from qtide.ledger.metrics import measure
from qtide.models.kernel import Array
from qtide.models.site import SiteModel
from qtide.runs.served import Promises
from qtide.twin.hybrid import HybridJob
from qtide.twin.play import Stage

BOUND = 10.0
"""Seconds: the slowdown of shorter jobs counts as if they took so long."""


@dataclass(frozen=True)
class Figures:
    """One replication in numbers; times are means per hybrid job, in seconds."""

    jobs: float
    turnaround: float
    """From submission to the end."""
    queue_nodes: float
    queue_qpu: float
    node_seconds: float
    efficiency: float
    """Busy by held node-seconds."""
    slowdown: float
    """Bounded slowdown."""
    fairness: float
    """Jain's index of the slowdowns: 1 if all are the same."""
    qpu_occupancy: float
    qpu_idle_wanted: float
    """The share of the time in which a QPU idles while a job waits for a lease of it."""
    promises_made: float
    """The share of the longest waits asked for that the service promised; 1 if none was."""
    promises_kept: float
    """The share of its promises that it kept; 1 if it made none."""
    failed: float
    """Jobs that ended with an error."""
    utilisation: float
    """Of the nodes, by all jobs."""
    others_wait: float
    others_slowdown: float
    energy_kwh: float
    """Per hybrid job: its nodes' and its part of the QPUs'."""

    def as_dict(self) -> dict[str, float]:
        """By name."""
        return asdict(self)


class Tally:
    """Listens to a stage."""

    def __init__(self, model: SiteModel) -> None:
        self._model = model
        self._sums: dict[str, float] = defaultdict(float)
        self._slowdowns = np.zeros(2)
        self._others = np.zeros(4)  # jobs, wait, slowdown, node-seconds
        self._first, self._last = float("inf"), 0.0
        self._idle_wanted = 0.0
        self._failed = 0
        self._promises = Promises()

    def started(self, rows: Array) -> None:
        """Jobs of other users have started."""
        wait, run, nodes = rows[:, 1] - rows[:, 2], rows[:, 3], rows[:, 4]
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, BOUND))
        self._others += (len(rows), wait.sum(), slowdown.sum(), (run * nodes).sum())
        self._last = max(self._last, float((rows[:, 1] + run).max()))

    def interrupted(self, row: Array, left: float) -> None:
        """One of them has to start again, with so many seconds left that it does not run now."""
        wait, run, nodes = row[1] - row[2], row[3], row[4]
        slowdown = max(1.0, (wait + run) / max(run, BOUND))
        self._others -= (1.0, wait, slowdown, left * nodes)

    def stage_ended(self, stage: Stage) -> None:
        """All jobs are over: take over what the stage has counted itself."""
        self._idle_wanted = stage.qpus.idle_wanted
        self._promises = stage.qpus.promises
        self._failed = stage.failed

    def ended(self, job: HybridJob, spans: list[Interval]) -> None:
        """A hybrid job is over."""
        metrics = measure(spans)
        end = metrics.jobs[0].end
        slowdown = max(1.0, (end - job.submit) / max(job.shortest, BOUND))
        self._slowdowns += (slowdown, slowdown**2)
        self._first, self._last = min(self._first, job.submit), max(self._last, end)
        for name, value in {
            "jobs": 1.0,
            "turnaround": end - job.submit,
            "queue_nodes": metrics.queue_nodes,
            "queue_qpu": metrics.queue_qpu,
            "held": metrics.nodes_held,
            "busy": metrics.nodes_busy,
            "qpu": metrics.qpu_busy,
        }.items():
            self._sums[name] += value

    def figures(self) -> Figures:
        """What was counted."""
        sums, number = self._sums, max(1.0, self._sums["jobs"])
        others = max(1.0, self._others[0])
        time = max(1e-9, self._last - min(self._first, self._last))
        qpu_time = time * self._model.qpu.number
        slowdown, squares = self._slowdowns
        promises = self._promises
        return Figures(
            jobs=sums["jobs"],
            turnaround=sums["turnaround"] / number,
            queue_nodes=sums["queue_nodes"] / number,
            queue_qpu=sums["queue_qpu"] / number,
            node_seconds=sums["held"] / number,
            efficiency=sums["busy"] / max(1e-9, sums["held"]),
            slowdown=float(slowdown) / number,
            fairness=float(slowdown**2 / (number * squares)) if squares else 1.0,
            qpu_occupancy=sums["qpu"] / qpu_time,
            qpu_idle_wanted=self._idle_wanted / qpu_time,
            promises_made=promises.made / promises.asked if promises.asked else 1.0,
            promises_kept=promises.kept / promises.made if promises.made else 1.0,
            failed=float(self._failed),
            utilisation=float(self._others[3] + sums["held"]) / (time * self._model.all_nodes),
            others_wait=float(self._others[1] / others),
            others_slowdown=float(self._others[2] / others),
            energy_kwh=self._energy(sums) / number / 3.6e6,
        )

    def _energy(self, sums: dict[str, float]) -> float:
        """Joules of the hybrid jobs."""
        power = self._model.power
        idle = sums["held"] - sums["busy"]
        return power.node_busy * sums["busy"] + power.node_idle * idle + power.qpu * sums["qpu"]


def describe(figures: Figures) -> dict[str, Any]:
    """For JSON, to six digits."""
    return {name: float(f"{value:.6g}") for name, value in figures.as_dict().items()}
