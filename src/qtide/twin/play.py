"""Plays hybrid jobs on a modelled site in virtual time, by the strategies' own code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtide.clusters.batch import BatchCluster
from qtide.clusters.cluster import Cluster
from qtide.clusters.simulated import cluster_of
from qtide.errors import NotEnoughNodes, PhaseError, UsageError
from qtide.jobs.job import Job
from qtide.jobs.values import Packed, Values
from qtide.ledger.ledger import Interval, Ledger
from qtide.models.queue import Interrupted, Started
from qtide.models.site import SiteModel
from qtide.models.trace import Trace
from qtide.options import declared
from qtide.programs.choice import Choice
from qtide.programs.journal import Record
from qtide.programs.phase import Phase, Quantum, Task
from qtide.programs.replay import Replay
from qtide.runs.plugin_options import plugin_value
from qtide.strategies.demand import Demand
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES, Assignment, Strategy, strategy
from qtide.twin.hybrid import HybridJob, program
from qtide.twin.partitions import Abreast
from qtide.twin.qpus import Qpus
from qtide.world.virtual import VirtualWorld


class Unkept(Values):
    """Packs nothing, since no journal keeps it."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def pack(self, value: Any, *, by_value: bool = False) -> Packed:
        """Nothing."""
        return Packed()


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
        others: Sequence[Iterable[Trace]] | None = None,
        interrupted: Interrupted = lambda *_: None,
    ) -> None:
        """`others` are the background jobs of each partition; by default, as the model says."""
        self.world = VirtualWorld()
        self.policy = policy
        self.failed = 0
        """How many jobs ended with an error."""
        self.qpus = Qpus(self.world, model, policy.vqpus)
        self._ended = ended
        self._step = model.delays.step
        self._loses = any(part.losses or part.failures for part in model.parts())
        self._options = options_of(model, policy)
        self._sites = []
        for number, part in enumerate(model.parts()):
            trace = None if others is None else others[number]
            cluster, demand = _cluster(self.world, part, started, trace, interrupted), Demand()
            self._sites.append([Site(self.world, cluster, qpu, demand) for qpu in self.qpus.all])
        self.clusters = [each[0].cluster for each in self._sites]
        """One per partition."""
        batches = [each for each in self.clusters if isinstance(each, BatchCluster)]
        if len(batches) > 1:
            self.world.beside(Abreast(batches))

    def play(self, jobs: Iterable[HybridJob]) -> float:
        """Play all jobs, which come in the order of their submission; when the last one ended."""
        return self.world.run(self._open(jobs))

    async def _open(self, jobs: Iterable[HybridJob]) -> float:
        """Play the jobs between opening and closing of the site; when the last one ended."""
        await self.qpus.open()
        try:
            await self._all(jobs)
            return self.world.now()
        finally:
            await self.qpus.close()
            await self.world.all_of([each.close() for each in self.clusters])

    async def _all(self, jobs: Iterable[HybridJob]) -> None:
        running: dict[Any, None] = {}
        for number, job in enumerate(jobs):
            await self.world.sleep(job.submit - self.world.now())
            task = self.world.start(self._one(job, number))
            running[task] = None
            task.add_done_callback(running.pop)
        while running:
            task = next(iter(running))
            await self.world.settled([task])
            task.result()

    async def _one(self, job: HybridJob, number: int) -> None:
        qpu, name = self.qpus.choose(), f"job-{number}"
        ledger = Ledger(name, self.world.now)
        driven = Job(name, ledger, Unkept(), job.seed)
        self.qpus.welcome(qpu, driven, job.user, number)
        try:
            await self._drive(job, driven, qpu)
        except PhaseError:
            self.failed += 1
        except NotEnoughNodes:
            if not self._loses:
                raise
            self.failed += 1
        finally:
            self.qpus.leave(qpu, driven)
        self._ended(job, ledger.intervals())

    async def _drive(self, hybrid: HybridJob, job: Job, qpu: int) -> None:
        assignment = Assignment(self._sites[hybrid.partition][qpu], job, hybrid.nodes)
        performer = strategy(self.policy.strategy, assignment, self._options)
        journal: Any = Forgetful()
        with job.ledger.span("run", "driver", self.policy.strategy):
            try:
                await performer.open()
                stepping = Stepping(self.world, performer, self._step)
                await Replay(self.world, stepping, journal, job).play(program(hybrid))
            finally:
                await performer.close()


def options_of(model: SiteModel, policy: Policy) -> dict[str, Any]:
    """The options of a policy's strategy: its own, then those of the site file."""
    known = {each.name: each for each in declared(STRATEGIES.load(policy.strategy).Options)}
    given = model.strategies.get(policy.strategy, {})
    for name in given:
        if name not in known:
            place = f"strategies.{policy.strategy}.{name}"
            options = ", ".join(known) or "none"
            raise UsageError(f"{place}: there is no such option; there are: {options}")
    return {name: plugin_value(known[name], value) for name, value in given.items()} | dict(
        policy.options
    )


def _cluster(
    world: VirtualWorld,
    part: SiteModel,
    started: Started,
    others: Iterable[Trace] | None,
    interrupted: Interrupted,
) -> Cluster:
    if part.is_batch:
        return BatchCluster(world, part, started, others, interrupted)
    return cluster_of(world, part)
