"""Replicated simulations of a site's workload under several strategies and numbers of vQPUs.

Every replication has its own world and its own seeds, so the result depends neither on the number
of cores nor on the order of computation.
"""

from __future__ import annotations

import gc
import signal
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from math import sqrt
from multiprocessing import active_children, get_context
from statistics import fmean, stdev

import numpy as np

from qtide.backends.models.site_model import SiteModel
from qtide.backends.models.trace import Array
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.core.processes import die_with_parent
from qtide.runs.served import PromiseCounts
from qtide.twin.simulation import HybridJob, Simulation, StrategySetup
from qtide.twin.workload import HybridWorkload


@dataclass(frozen=True)
class Scenario:
    """A strategy with a number of virtual QPUs and the figures of its replications."""

    setup: StrategySetup
    replications: tuple[SimulationFigures, ...]

    def estimates(self) -> dict[str, MeanEstimate]:
        """Return the mean of each figure by name."""
        return {
            each.name: MeanEstimate.of([getattr(one, each.name) for one in self.replications])
            for each in fields(SimulationFigures)
        }


def simulate(
    model: SiteModel,
    setups: Sequence[StrategySetup],
    replications: int = 1,
    cores: int = 1,
    tell: Callable[[int, int], object] = lambda *_: None,
) -> list[Scenario]:
    """Simulate every setup; call `tell` with the number of replications done and their total."""
    work = [(model, setup, number) for setup in setups for number in range(replications)]
    found = []
    for figures in _computed(work, cores):
        found.append(figures)
        tell(len(found), len(work))
    return [
        Scenario(setup, tuple(found[place * replications : (place + 1) * replications]))
        for place, setup in enumerate(setups)
    ]


def _computed(
    work: list[tuple[SiteModel, StrategySetup, int]], cores: int
) -> Iterator[SimulationFigures]:
    if min(cores, len(work)) < 2:
        for each in work:
            yield replicate(*each)
        return
    others = active_children()
    with ProcessPoolExecutor(min(cores, len(work)), get_context("spawn"), _attached) as pool:
        results = [pool.submit(replicate, *each) for each in work]
        try:
            for result in results:
                yield result.result()
        except BaseException:
            for child in active_children():
                if child not in others:
                    child.kill()  # a replication may take minutes
            raise


def _attached() -> None:
    """Let this process end when its parent says so or dies, not by Ctrl-C, which reaches both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def replicate(model: SiteModel, setup: StrategySetup, replication: int) -> SimulationFigures:
    """Simulate one replication."""
    workload = HybridWorkload.of(model, replication)
    metrics = SimulationMetrics(model)
    simulation = Simulation(
        workload.model,
        setup,
        metrics.ended,
        metrics.started,
        workload.others(),
        metrics.interrupted,
    )
    with rare_collections():
        simulation.run(workload.hybrids())
    return metrics.figures(simulation)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage rarely: a simulation creates many objects, but hardly any cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@dataclass(frozen=True)
class SimulationFigures:
    """The figures of one replication; times are means per hybrid job, in seconds."""

    jobs: float
    turnaround: float
    """Time from submission to end."""
    queue_nodes: float
    queue_qpu: float
    queue_qpu_p95: float
    """95th percentile of the payloads' waits for the QPU, lease and device together."""
    node_seconds: float
    charge: float
    """What the site charges per job, by the weights of its file."""
    efficiency: float
    """Busy node-seconds divided by held node-seconds."""
    slowdown: float
    """Bounded slowdown."""
    fairness: float
    """Jain's index of the slowdowns; 1 if all are equal."""
    qpu_occupancy: float
    qpu_idle_wanted: float
    """Share of the time in which a QPU is idle while a job waits to lease it."""
    promises_made: float
    """Share of the requested maximum waits that the service promised; 1 if none was requested."""
    promises_kept: float
    """Share of its promises that the service kept; 1 if it made none."""
    failed: float
    """Number of jobs that failed."""
    utilisation: float
    """Share of the site's node time held by all jobs."""
    others_wait: float
    others_slowdown: float
    energy_kwh: float
    """Energy per hybrid job: that of its nodes and its share of the QPUs'."""

    def as_dict(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


BOUND = 10.0
"""Minimum run time in seconds assumed in the bounded slowdown."""


class SimulationMetrics:
    """Accumulates the metrics of the jobs of one replication."""

    def __init__(self, model: SiteModel) -> None:
        self._model = model
        self._sums: dict[str, float] = defaultdict(float)
        self._slowdowns = np.zeros(2)  # sum, and sum of squares
        self._others = np.zeros(4)  # jobs, wait, slowdown, node-seconds
        self._first, self._last = float("inf"), 0.0
        self._payloads = array("d")
        """Seconds that each payload waited."""

    def started(self, rows: Array) -> None:
        """Count jobs of other users that have started."""
        wait, run, nodes = rows[:, 1] - rows[:, 2], rows[:, 3], rows[:, 4]
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, BOUND))
        self._others += (len(rows), wait.sum(), slowdown.sum(), (run * nodes).sum())
        self._first = min(self._first, float(rows[:, 2].min()))
        self._last = max(self._last, float((rows[:, 1] + run).max()))

    def interrupted(self, row: Array, left: float) -> None:
        """Discount another user's job, requeued as it lost a node `left` seconds before its end."""
        wait, run, nodes = row[1] - row[2], row[3], row[4]
        slowdown = max(1.0, (wait + run) / max(run, BOUND))
        self._others -= (1.0, wait, slowdown, left * nodes)

    def ended(self, job: HybridJob, spans: list[Interval]) -> None:
        """Count a hybrid job that has ended."""
        metrics = measure(spans)
        end = metrics.jobs[0].end
        slowdown = max(1.0, (end - job.submit) / max(job.shortest, BOUND))
        self._slowdowns += (slowdown, slowdown**2)
        self._payloads.extend(payload_waits(spans))
        self._first, self._last = min(self._first, job.submit), max(self._last, end)
        for name, value in {
            "jobs": 1.0,
            "turnaround": end - job.submit,
            "queue_nodes": metrics.queue_nodes,
            "queue_qpu": metrics.queue_qpu,
            "held": metrics.nodes_held,
            "charge": metrics.billing_held or metrics.nodes_held,
            "busy": metrics.nodes_busy,
            "qpu": metrics.qpu_busy,
        }.items():
            self._sums[name] += value

    def figures(self, simulation: Simulation) -> SimulationFigures:
        """Return the figures of a finished simulation."""
        sums, number = self._sums, max(1.0, self._sums["jobs"])
        others = max(1.0, self._others[0])
        time = max(1e-9, self._last - min(self._first, self._last))
        qpu_time = time * self._model.qpu.number
        slowdown, squares = self._slowdowns
        promises: PromiseCounts = simulation.qpus.promises
        power = self._model.power
        joules = (
            power.node_busy * sums["busy"]
            + power.node_idle * (sums["held"] - sums["busy"])
            + power.qpu * sums["qpu"]
        )
        return SimulationFigures(
            jobs=sums["jobs"],
            turnaround=sums["turnaround"] / number,
            queue_nodes=sums["queue_nodes"] / number,
            queue_qpu=sums["queue_qpu"] / number,
            queue_qpu_p95=float(np.quantile(self._payloads, USUAL)) if self._payloads else 0.0,
            node_seconds=sums["held"] / number,
            charge=sums["charge"] / number,
            efficiency=sums["busy"] / max(1e-9, sums["held"]),
            slowdown=float(slowdown) / number,
            fairness=float(slowdown**2 / (number * squares)) if squares else 1.0,
            qpu_occupancy=sums["qpu"] / qpu_time,
            qpu_idle_wanted=simulation.qpus.idle_wanted / qpu_time,
            promises_made=promises.made / promises.asked if promises.asked else 1.0,
            promises_kept=promises.kept / promises.made if promises.made else 1.0,
            failed=float(simulation.failed),
            utilisation=float(self._others[3] + sums["held"]) / (time * self._model.all_nodes),
            others_wait=float(self._others[1] / others),
            others_slowdown=float(self._others[2] / others),
            energy_kwh=joules / number / 3.6e6,
        )


USUAL = 0.95
"""Percentile of the waits that is reported beside their mean."""


def payload_waits(spans: Sequence[Interval]) -> list[float]:
    """Return the seconds that each payload of a job waited for a lease and for the device."""
    waits = [span for span in spans if span.what == "wait" and span.lane == "qpu"]
    phases = [span for span in spans if span.what == "phase" and span.lane == "quantum"]
    return [
        sum(wait.seconds for wait in waits if phase.start <= wait.start and wait.end <= phase.end)
        for phase in phases
    ]


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over replications and half the width of its 95 % confidence interval."""

    mean: float
    half: float

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half

    @staticmethod
    def of(values: Sequence[float]) -> MeanEstimate:
        """Estimate from one value per replication; the half-width of a single value is 0."""
        number = len(values)
        if number < 2:
            return MeanEstimate(values[0], 0.0)
        return MeanEstimate(fmean(values), _student(number - 1) * stdev(values) / sqrt(number))


STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571)
"""Student's t for 95 % by degrees of freedom; `_student` approximates further values."""


def _student(freedom: int) -> float:
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    return 1.95996 + 2.37227 / freedom + 2.8225 / freedom**2 + 2.5559 / freedom**3
