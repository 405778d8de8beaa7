"""A workload under several strategies and numbers of virtual QPUs, replicated, on all cores.

Every replication is a world of its own with seeds of its own, so the result does not depend on how
many cores compute it, nor in which order they do.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from heapq import merge
from math import log, sqrt
from multiprocessing import get_context
from statistics import fmean, stdev
from typing import Any

import numpy as np

from qtide.backends.clusters.simulated import background
from qtide.backends.models.site_model import Background, Generator, Mix, SiteModel
from qtide.backends.models.trace import Array, Trace
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.runs.served import PromiseCounts
from qtide.twin.play import HybridJob, HybridStep, Simulation, StrategyOptions


@dataclass(frozen=True)
class HybridWorkload:
    """What comes to a site in one replication; both sides are read piece by piece."""

    model: SiteModel

    @staticmethod
    def of(model: SiteModel, replication: int) -> HybridWorkload:
        """That of a replication: every random number comes from its seeds."""
        parts = [
            replace(part, background=_seeded(part.background, [replication, number]))
            for number, part in enumerate(model.partitions)
        ]
        failures = model.failures
        if failures is not None:
            failures = replace(failures, seed=_mixed([failures.seed, replication, 4]))
        return HybridWorkload(
            replace(
                model,
                background=_seeded(model.background, [replication]),
                partitions=tuple(parts),
                hybrid=replace(model.hybrid, seed=_mixed([model.hybrid.seed, replication, 1])),
                failures=failures,
            )
        )

    def others(self) -> list[Iterator[Trace]]:
        """The jobs that are not hybrid, by partition."""
        return [self._others(number) for number in range(len(self.model.parts()))]

    def hybrids(self) -> Iterator[HybridJob]:
        """The hybrid jobs, in the order of their submission."""
        if not self.model.hybrid.share:
            return self._generated()
        places = range(len(self.model.parts()))
        return merge(*(self._turned(place) for place in places), key=lambda job: job.submit)

    def _others(self, place: int) -> Iterator[Trace]:
        for chunk, hybrid in self._chosen(place):
            yield chunk.part(~hybrid)

    def _generated(self) -> Iterator[HybridJob]:
        """As many as the mix says, of any size but the same for every partition."""
        mix = self.model.hybrid
        weights = [part.hybrid for part in self.model.partitions] or [1.0]
        chances = np.array(weights) / sum(weights)
        arrivals = Generator(jobs=mix.jobs, days=mix.days, users=mix.users, seed=mix.seed)
        random, places = np.random.default_rng([mix.seed, 2]), np.random.default_rng([mix.seed, 5])
        for chunk in arrivals.chunks():
            factors = _factors(random, mix.variation, len(chunk))
            where = places.choice(len(weights), len(chunk), p=chances)
            for number, submit in enumerate(chunk.submit):
                job = _job(mix, float(submit), factors[number], mix.nodes, number)
                yield replace(job, user=int(chunk.user[number]), partition=int(where[number]))

    def _turned(self, place: int) -> Iterator[HybridJob]:
        """Jobs of a trace as hybrid ones that take as long."""
        mix = self.model.hybrid
        for chunk, hybrid in self._chosen(place):
            jobs = chunk.part(hybrid)
            for number in range(len(jobs)):
                nodes = int(jobs.nodes[number])
                usual = _job(mix, 0.0, (1.0, 1.0), nodes, 0).shortest
                factor = float(jobs.run[number]) / max(usual, 1e-9)
                job = _job(mix, float(jobs.submit[number]), (factor, factor), nodes, number)
                yield replace(job, user=int(jobs.user[number]), partition=place)

    def _chosen(self, place: int) -> Iterator[tuple[Trace, Any]]:
        """The chunks of a partition's trace, and which of their jobs are hybrid."""
        mix = self.model.hybrid
        share = mix.share
        if self.model.partitions and not self.model.partitions[place].hybrid:
            share = 0.0
        for number, chunk in enumerate(background(self.model.parts()[place])):
            random = np.random.default_rng([mix.seed, 3, number, *([place] if place else [])])
            yield chunk, random.random(len(chunk)) < share


def _job(mix: Mix, submit: float, factors: tuple[float, float], nodes: int, seed: int) -> HybridJob:
    classical, quantum = factors
    steps = [
        *_classical(mix, classical, nodes),
        HybridStep(quantum=mix.quantum * quantum),
        *([HybridStep((mix.alone * classical,))] if mix.alone else []),
    ]
    return HybridJob(tuple(steps) * mix.rounds, submit, nodes, seed)


def _classical(mix: Mix, factor: float, nodes: int) -> list[HybridStep]:
    """The tasks side by side; or one task, on as many nodes as its table and the job allow."""
    if mix.table:
        on = max(number for number in mix.table if number <= nodes)
        return [HybridStep((mix.table[on] * factor,), nodes=on)]
    return [HybridStep(tuple(seconds * factor for seconds in mix.tasks))] if mix.tasks else []


def _factors(random: Any, variation: float, number: int) -> list[tuple[float, float]]:
    """By how much the durations of each job, classical and quantum, differ from the usual."""
    sigma = sqrt(log(1 + variation**2))
    drawn = random.lognormal(-(sigma**2) / 2, sigma, (number, 2)) if sigma else np.ones((number, 2))
    return [(float(first), float(second)) for first, second in drawn]


def _seeded(others: Background, more: list[int]) -> Background:
    """Generated jobs of another seed."""
    if others.generate is None:
        return others
    seed = _mixed([others.generate.seed, *more])
    return replace(others, generate=replace(others.generate, seed=seed))


def _mixed(seeds: list[int]) -> int:
    """One seed out of several."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])


BOUND = 10.0
"""Seconds: the slowdown of shorter jobs counts as if they took so long."""


@dataclass(frozen=True)
class SimulationFigures:
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


class SimulationMetrics:
    """Listens to a stage."""

    def __init__(self, model: SiteModel) -> None:
        self._model = model
        self._sums: dict[str, float] = defaultdict(float)
        self._slowdowns = np.zeros(2)
        self._others = np.zeros(4)  # jobs, wait, slowdown, node-seconds
        self._first, self._last = float("inf"), 0.0
        self._idle_wanted = 0.0
        self._failed = 0
        self._promises = PromiseCounts()

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

    def stage_ended(self, stage: Simulation) -> None:
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

    def figures(self) -> SimulationFigures:
        """What was counted."""
        sums, number = self._sums, max(1.0, self._sums["jobs"])
        others = max(1.0, self._others[0])
        time = max(1e-9, self._last - min(self._first, self._last))
        qpu_time = time * self._model.qpu.number
        slowdown, squares = self._slowdowns
        promises = self._promises
        return SimulationFigures(
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


def describe(figures: SimulationFigures) -> dict[str, Any]:
    """For JSON, to six digits."""
    return {name: float(f"{value:.6g}") for name, value in figures.as_dict().items()}


STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571)
"""Student's t for 95 %, by degrees of freedom; beyond, a series in their inverse."""


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over replications, and half the width of its 95 % confidence interval."""

    mean: float
    half: float

    @staticmethod
    def of(values: Sequence[float]) -> MeanEstimate:
        """From one value per replication; of a single one, the width is not known: 0."""
        number = len(values)
        if number < 2:
            return MeanEstimate(values[0], 0.0)
        return MeanEstimate(fmean(values), _student(number - 1) * stdev(values) / sqrt(number))


@dataclass(frozen=True)
class Scenario:
    """A strategy with a number of virtual QPUs, and what was estimated."""

    policy: StrategyOptions
    replications: tuple[SimulationFigures, ...]

    def estimates(self) -> dict[str, MeanEstimate]:
        """By the names of the figures."""
        names = [each.name for each in fields(SimulationFigures)]
        return {
            name: MeanEstimate.of([getattr(each, name) for each in self.replications])
            for name in names
        }


def _student(freedom: int) -> float:
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    return 1.95996 + 2.37227 / freedom + 2.8225 / freedom**2 + 2.5559 / freedom**3


def replicate(model: SiteModel, policy: StrategyOptions, replication: int) -> SimulationFigures:
    """One replication."""
    workload = HybridWorkload.of(model, replication)
    tally = SimulationMetrics(model)
    stage = Simulation(
        workload.model, policy, tally.ended, tally.started, workload.others(), tally.interrupted
    )
    with rare_collections():
        stage.play(workload.hybrids())
    tally.stage_ended(stage)
    return tally.figures()


def simulate(
    model: SiteModel,
    policies: Sequence[StrategyOptions],
    replications: int = 1,
    cores: int = 1,
    tell: Callable[[int, int], object] = lambda *_: None,
) -> list[Scenario]:
    """All cases; `tell` hears how many replications of how many are done."""
    work = [(model, policy, number) for policy in policies for number in range(replications)]
    found = []
    for figures in _computed(work, cores):
        found.append(figures)
        tell(len(found), len(work))
    return [
        Scenario(policy, tuple(found[place * replications : (place + 1) * replications]))
        for place, policy in enumerate(policies)
    ]


def _computed(
    work: list[tuple[SiteModel, StrategyOptions, int]], cores: int
) -> Iterator[SimulationFigures]:
    if min(cores, len(work)) < 2:
        for each in work:
            yield replicate(*each)
        return
    with ProcessPoolExecutor(min(cores, len(work)), get_context("spawn")) as pool:
        yield from pool.map(replicate, *zip(*work, strict=True))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cycles rarely: a simulation creates many objects, and hardly any cycle."""
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
