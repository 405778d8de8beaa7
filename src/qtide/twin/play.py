"""Plays hybrid jobs on a modelled site in virtual time, by the strategies' own code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtide.clusters.batch import BatchCluster
from qtide.clusters.cluster import Cluster
from qtide.clusters.simulated import cluster_of
from qtide.devices.bursts import Bursts
from qtide.devices.profile import UNTIMED
from qtide.jobs.job import Job
from qtide.jobs.values import Values
from qtide.leases.modelled import ModelledQpu
from qtide.ledger.ledger import Interval, Ledger
from qtide.models.queue import Started
from qtide.models.site import SiteModel
from qtide.models.trace import Trace
from qtide.programs.choice import Choice
from qtide.programs.journal import Record
from qtide.programs.phase import Phase, Quantum, Task
from qtide.programs.replay import Replay
from qtide.strategies.demand import Demand
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, Strategy, strategy
from qtide.twin.hybrid import HybridJob, program
from qtide.world.virtual import VirtualWorld

NOWHERE = Path("/nonexistent")
"""Where large values would go: the results of the twin's tasks are small."""

Ended = Callable[[HybridJob, list[Interval]], object]
"""Called with each job that has ended, and what its ledger says."""


@dataclass(frozen=True)
class Policy:
    """Under which strategy the jobs run, with its options, and how many virtual QPUs there are."""

    strategy: str
    vqpus: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


class Forgetful:
    """A journal that keeps nothing: the twin resumes no run."""

    def find(self, key: str) -> Record | None:
        """There is never one."""

    def append(self, record: Record) -> None:
        """Forget it."""


class Stepping:
    """A strategy whose driver takes a while between two phases."""

    def __init__(self, world: VirtualWorld, performer: Strategy, seconds: float) -> None:
        self._world = world
        self._performer = performer
        self._seconds = seconds

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run the phase, after a while."""
        if self._seconds:
            await self._world.sleep(self._seconds)
        return await self._performer.perform(phase, key)

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> Choice:
        """As the strategy does."""
        return await self._performer.choose(phase, otherwise, key)


class Stage:
    """A site in virtual time; each job goes to the QPU that the fewest other jobs use."""

    def __init__(
        self,
        model: SiteModel,
        policy: Policy,
        ended: Ended,
        started: Started = lambda *_: None,
        others: Iterable[Trace] | None = None,
    ) -> None:
        self.world = VirtualWorld()
        self.policy = policy
        self._ended = ended
        self._step = model.delays.step
        cluster, demand = _cluster(self.world, model, started, others), Demand()
        self.cluster = cluster
        self._qpus = [
            ModelledQpu(self.world, Bursts(), UNTIMED, policy.vqpus, model.qpu)
            for _ in range(model.qpu.number)
        ]
        self._sites = [Site(self.world, cluster, qpu, demand) for qpu in self._qpus]
        self._using = [0] * len(self._qpus)

    def play(self, jobs: Iterable[HybridJob]) -> float:
        """Play all jobs, which come in the order of their submission; when the last one ended."""
        self.world.run(self._all(jobs))
        return self.world.now()

    async def _all(self, jobs: Iterable[HybridJob]) -> None:
        running: dict[Any, None] = {}
        for number, job in enumerate(jobs):
            await self.world.sleep(job.submit - self.world.now())
            task = self.world.start(self._one(job, f"job-{number}"))
            running[task] = None
            task.add_done_callback(running.pop)
        while running:
            task = next(iter(running))
            await self.world.settled([task])
            task.result()

    async def _one(self, job: HybridJob, name: str) -> None:
        number = self._using.index(min(self._using))
        self._using[number] += 1
        ledger = Ledger(name, self.world.now)
        driven = Job(name, ledger, Values(NOWHERE), job.seed)
        try:
            await self._drive(job, driven, number)
        finally:
            self._using[number] -= 1
            self._qpus[number].forget(driven)
        self._ended(job, ledger.intervals())

    async def _drive(self, hybrid: HybridJob, job: Job, number: int) -> None:
        assignment = Assignment(self._sites[number], job, hybrid.nodes)
        performer = strategy(self.policy.strategy, assignment, self.policy.options)
        journal: Any = Forgetful()
        with job.ledger.span("run", "driver", self.policy.strategy):
            try:
                await performer.open()
                stepping = Stepping(self.world, performer, self._step)
                await Replay(self.world, stepping, journal, job).play(program(hybrid))
            finally:
                await performer.close()


def _cluster(
    world: VirtualWorld, model: SiteModel, started: Started, others: Iterable[Trace] | None
) -> Cluster:
    if model.is_batch:
        return BatchCluster(world, model, started, others)
    return cluster_of(world, model)
