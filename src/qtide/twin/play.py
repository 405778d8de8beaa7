"""Plays hybrid jobs on a modelled site in virtual time, by the strategies' own code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isinf
from pathlib import Path
from typing import Any

from qtide.backends.clusters.batch import BatchCluster
from qtide.backends.clusters.cluster import Cluster
from qtide.backends.clusters.pretend import pretend
from qtide.backends.clusters.simulated import cluster_of
from qtide.backends.devices.bursts import Bursts
from qtide.backends.devices.profile import UNTIMED
from qtide.backends.leases.emulated import EmulatedTask, ModelledQpu
from qtide.backends.leases.qpu import FifoSlots, IdleMeter, MeteredQpu
from qtide.backends.models.batch_queue import Interrupted, Started
from qtide.backends.models.site_model import QpuModel, SiteModel
from qtide.backends.models.trace import Trace
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import NotEnoughNodes, PhaseError, UsageError
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger
from qtide.core.options import declared
from qtide.core.values import Packed, Values
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import World
from qtide.programs.journal import JournalRecord
from qtide.programs.phase import Phase, Quantum, Task, classical, quantum, task, together
from qtide.programs.replay import CandidateChoice, Replay
from qtide.runs.run_options import plugin_value
from qtide.runs.served import PromiseCounts, ServedQpu, SharedQpus
from qtide.service.task import Caller
from qtide.strategies.site import Demand, Site
from qtide.strategies.strategy import STRATEGIES, Assignment, Strategy, strategy


@dataclass(frozen=True)
class HybridStep:
    """Tasks that run at the same time, by their seconds; a payload of so many seconds; or both."""

    tasks: tuple[float, ...] = ()
    quantum: float | None = None
    nodes: int = 1
    """How many nodes each of the tasks takes."""


@dataclass(frozen=True)
class HybridJob:
    """A job with its steps, from first to last."""

    steps: tuple[HybridStep, ...]
    submit: float = 0.0
    nodes: int = 1
    """The most nodes that it may hold."""
    seed: int = 0
    user: int = 0
    partition: int = 0
    """The number of the partition that it asks for nodes."""

    @property
    def quantum(self) -> float:
        """Seconds of its quantum phases."""
        return sum(step.quantum or 0.0 for step in self.steps)

    @property
    def shortest(self) -> float:
        """Seconds that it takes if it never waits."""
        return sum(max((*step.tasks, step.quantum or 0.0)) for step in self.steps)


async def program(job: HybridJob) -> None:
    """What the strategies drive."""
    for step in job.steps:
        tasks = [_task(seconds, step.nodes) for seconds in step.tasks]
        if tasks and step.quantum is not None:
            await together(classical(*tasks), quantum(Burst(step.quantum, 0)))
        elif tasks:
            await classical(*tasks)
        else:
            await quantum(Burst(step.quantum, 0))


def _task(seconds: float, nodes: int) -> Any:
    return task(work, seconds) if nodes == 1 else task(shared, seconds).on(nodes)


def work(seconds: float) -> None:
    """A task that takes so long."""
    pretend(seconds)


def shared(seconds: float, rank: int = 0, size: int = 1) -> None:
    """One rank of a task on several nodes."""
    pretend(seconds)


Program = Coroutine[Any, Any, Any]


class PartitionSync:
    """Keeps the partitions of a site at the same time."""

    def __init__(self, clusters: Sequence[BatchCluster]) -> None:
        self._clusters = clusters
        self._granting: BatchCluster | None = None

    def until(self, moment: float) -> float | None:
        """When the next hybrid job is answered, if that is at `moment` or before."""
        granted = self._first_grant(moment)
        bound = moment if granted is None else granted
        for cluster in self._clusters:
            if not cluster.asks:
                cluster.until(bound)
        return granted

    def deliver(self) -> None:
        """Let the partition hand its nodes over."""
        assert self._granting is not None
        self._granting.deliver()

    def _first_grant(self, moment: float) -> float | None:
        """Let the partitions in which a hybrid job waits go on, up to the first grant."""
        asking = [cluster for cluster in self._clusters if cluster.asks]
        while asking:
            order = sorted((cluster.upcoming, n) for n, cluster in enumerate(asking))
            if order[0][0] > moment or isinf(order[0][0]):
                break
            self._granting = asking[order[0][1]]
            limit = min(moment, order[1][0]) if len(order) > 1 else moment
            granted = self._granting.until(limit)
            if granted is not None:
                return granted
        return None


class QueuedQpu(MeteredQpu, ModelledQpu):
    """A QPU with a queue of its own."""

    def __init__(self, world: World, slots: int, model: QpuModel) -> None:
        super().__init__(world, Bursts(), UNTIMED, slots, model)
        self.meter = IdleMeter(world)

    def forget(self, job: JobContext) -> None:
        """The job is over."""
        MeteredQpu.forget(self, job)
        ModelledQpu.forget(self, job)

    async def _solve(self, task: EmulatedTask) -> Any:
        with self.meter.working():
            return await super()._solve(task)


class Qpus:
    """All of them; a job goes to the one that the fewest other jobs use."""

    def __init__(self, world: World, model: SiteModel, vqpus: int) -> None:
        self._shared: SharedQpus | None = None
        self.all: Sequence[QueuedQpu | ServedQpu]
        if model.service is not None:
            self._shared = SharedQpus(world, model.qpu, model.service, vqpus)
            self.all = self._shared.qpus
        else:
            self.all = [QueuedQpu(world, vqpus, model.qpu) for _ in range(model.qpu.number)]
        if model.qpu.licences is not None:
            licences = FifoSlots(world, model.qpu.licences)
            for qpu in self.all:
                qpu.admission = licences
        self._using = [0] * len(self.all)
        self.idle_wanted = 0.0
        """Seconds, of all QPUs together, in which one idled while a job waited for a lease."""

    @property
    def promises(self) -> PromiseCounts:
        """What the service promised, and kept."""
        return self._shared.promises if self._shared else PromiseCounts()

    async def open(self) -> None:
        """Start the service, if there is one."""
        if self._shared is not None:
            await self._shared.open()

    async def close(self) -> None:
        """Stop it."""
        self.idle_wanted = sum(qpu.meter.idle() for qpu in self.all)
        if self._shared is not None:
            await self._shared.close()

    def choose(self) -> int:
        """The number of the QPU for the next job."""
        number = self._using.index(min(self._using))
        self._using[number] += 1
        return number

    def welcome(self, number: int, job: JobContext, user: int, which: int) -> None:
        """Tell the service whose job it is."""
        qpu = self.all[number]
        if isinstance(qpu, ServedQpu):
            qpu.admit(job, Caller(f"user-{user}", job=which))

    def leave(self, number: int, job: JobContext) -> None:
        """The job is over."""
        self._using[number] -= 1
        self.all[number].forget(job)


class NullValues(Values):
    """Packs nothing, since no journal keeps it."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def pack(self, value: Any, *, by_value: bool = False) -> Packed:
        """Nothing."""
        return Packed()


Ended = Callable[[HybridJob, list[Interval]], object]
"""Called with each job that has ended, and what its ledger says."""


@dataclass(frozen=True)
class StrategyOptions:
    """Under which strategy the jobs run, with its options, and how many virtual QPUs there are."""

    strategy: str
    vqpus: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


class NullJournal:
    """A journal that keeps nothing: the twin resumes no run."""

    def find(self, key: str) -> JournalRecord | None:
        """There is never one."""

    def append(self, record: JournalRecord) -> None:
        """Forget it."""


class DriverDelay:
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

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """As the strategy does."""
        return await self._performer.choose(phase, otherwise, key)


class Simulation:
    """A site in virtual time; each job goes to the QPU that the fewest other jobs use."""

    def __init__(
        self,
        model: SiteModel,
        policy: StrategyOptions,
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
            self.world.beside(PartitionSync(batches))

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
        driven = JobContext(name, ledger, NullValues(), job.seed)
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

    async def _drive(self, hybrid: HybridJob, job: JobContext, qpu: int) -> None:
        assignment = Assignment(self._sites[hybrid.partition][qpu], job, hybrid.nodes)
        performer = strategy(self.policy.strategy, assignment, self._options)
        journal: Any = NullJournal()
        with job.ledger.span("run", "driver", self.policy.strategy):
            try:
                await performer.open()
                stepping = DriverDelay(self.world, performer, self._step)
                await Replay(self.world, stepping, journal, job).play(program(hybrid))
            finally:
                await performer.close()


def options_of(model: SiteModel, policy: StrategyOptions) -> dict[str, Any]:
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
