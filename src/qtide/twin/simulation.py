"""Simulates hybrid jobs on a modelled site in virtual time, with the strategies' own code.

`Simulation` models the site: its partitions, its QPUs (with the vQPU service, if any) and its
clock. Each `HybridJob` becomes a program of classical and quantum phases, which the strategy
runs as in a real run; nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import repeat
from typing import Any

from qtide.backends.clusters.batch_cluster import BatchCluster, PartitionSync
from qtide.backends.clusters.cluster import Cluster, KindsCluster
from qtide.backends.clusters.pretend import pretend
from qtide.backends.clusters.simulated import cluster_of_kind
from qtide.backends.devices.bursts import Bursts
from qtide.backends.devices.profile import UNTIMED
from qtide.backends.leases.emulated import EmulatedTask, ModelledQpu
from qtide.backends.leases.qpu import FifoSlots, IdleMeter, MeteredQpu
from qtide.backends.models.batch_queue import Interrupted, Started
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import SiteModel
from qtide.backends.models.trace import Trace
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import NotEnoughNodes, PhaseError, UsageError
from qtide.core.forecasts import Forecast
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger
from qtide.core.options import declared
from qtide.core.resources import WHOLE, Needs, NodeKind
from qtide.core.values import NullValues
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import World
from qtide.programs.journal import NullJournal
from qtide.programs.phase import (
    Classical,
    Phase,
    Quantum,
    Task,
    classical,
    quantum,
    task,
    together,
)
from qtide.programs.replay import CandidateChoice, Replay
from qtide.runs.run_options import plugin_value
from qtide.runs.served import PromiseCounts, ServedQpu, SharedQpus
from qtide.service.task import Caller
from qtide.strategies.site import Demand, Site
from qtide.strategies.strategy import STRATEGIES, Assignment, Strategy, strategy


@dataclass(frozen=True)
class HybridStep:
    """One phase of a hybrid job: parallel tasks, a quantum payload, or both at once."""

    tasks: tuple[float, ...] = ()
    """Duration of each task in seconds."""
    quantum: float | None = None
    """Duration of the payload in seconds."""
    nodes: int = 1
    """Nodes per task."""
    needs: Needs = WHOLE
    """What each task needs of a node."""
    table: tuple[tuple[int, float], ...] = ()
    """For a malleable task: numbers of nodes and its seconds on so many, in order."""
    names: tuple[str, ...] = ()
    """The function of each task, by which strategies know it again; empty if all are alike."""


@dataclass(frozen=True)
class HybridJob:
    """A job as the twin simulates it: a sequence of steps."""

    steps: tuple[HybridStep, ...]
    submit: float = 0.0
    nodes: int = 1
    """Maximum number of nodes the job may hold."""
    seed: int = 0
    user: int = 0
    partition: int = 0
    """Index of the partition the job requests nodes from."""

    @property
    def quantum(self) -> float:
        """Total seconds of the quantum phases."""
        return sum(step.quantum or 0.0 for step in self.steps)

    @property
    def shortest(self) -> float:
        """Seconds the job takes if it never waits."""
        return sum(max(step.quantum or 0.0, *step.tasks, 0.0) for step in self.steps)

    @property
    def classical(self) -> float:
        """Total seconds of the classical phases, each as long as its longest task."""
        return sum(max(step.tasks, default=0.0) for step in self.steps)


@dataclass(frozen=True)
class StrategySetup:
    """The strategy for all jobs, its options, and the number of virtual QPUs per QPU."""

    strategy: str
    vqpus: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)


JobEnded = Callable[[HybridJob, list[Interval]], object]
"""Callback for each finished job and its ledger."""
Teach = Callable[[Forecast], object]
"""Called with the forecast of each job before it begins."""


def untaught(_: Forecast) -> None:
    """Teach nothing: the job is the first of its program."""


class Simulation:
    """A site in virtual time; each new job is assigned to the QPU with the fewest jobs."""

    def __init__(
        self,
        model: SiteModel,
        setup: StrategySetup,
        ended: JobEnded,
        started: Started = lambda *_: None,
        others: Sequence[Iterable[Trace]] | None = None,
        interrupted: Interrupted = lambda *_: None,
        teach: Teach = untaught,
    ) -> None:
        """`others` holds the background jobs of each partition; default: those of the model."""
        self.world = VirtualWorld()
        self.setup = setup
        self.failed = 0
        """Number of jobs that failed."""
        self.qpus = SiteQpus(self.world, model, setup.vqpus)
        self._teach, self._ended = teach, ended
        self._step = model.delays.step
        self._options = strategy_options(model, setup)
        self._nodes_fail = any(part.losses or part.failures for part in model.parts())
        hooks = BatchHooks(started, interrupted)
        self.clusters, homes = site_clusters(self.world, model, hooks, others)
        """One cluster per partition with nodes of its own, or per kind of nodes."""
        demands = {id(cluster): Demand() for cluster in homes}
        self._sites = [
            [Site(self.world, home, qpu, demands[id(home)]) for qpu in self.qpus.all]
            for home in homes
        ]

    def run(self, jobs: Iterable[HybridJob]) -> float:
        """Simulate all jobs, sorted by submission; return the time at which the last one ends."""
        return self.world.run(self._run(jobs))

    async def _run(self, jobs: Iterable[HybridJob]) -> float:
        await self.qpus.open()
        try:
            await self._play_all(jobs)
            return self.world.now()
        finally:
            await self.qpus.close()
            await self.world.all_of([each.close() for each in self.clusters])

    async def _play_all(self, jobs: Iterable[HybridJob]) -> None:
        running: dict[Any, None] = {}  # drops ended jobs: a year of them would fill the memory
        for number, job in enumerate(jobs):
            await self.world.sleep(job.submit - self.world.now())
            task = self.world.start(self._play(job, number))
            running[task] = None
            task.add_done_callback(running.pop)
        while running:
            task = next(iter(running))
            await self.world.settled([task])
            task.result()

    async def _play(self, hybrid: HybridJob, number: int) -> None:
        """Simulate one job from submission to end."""
        name = f"job-{number}"
        job = JobContext(name, Ledger(name, self.world.now), NullValues(), hybrid.seed)
        qpu = self.qpus.choose()
        self.qpus.admit(qpu, job, hybrid.user, number)
        try:
            await self._drive(hybrid, job, self._sites[hybrid.partition][qpu])
        except PhaseError:
            self.failed += 1
        except NotEnoughNodes:
            if not self._nodes_fail:
                raise
            self.failed += 1
        finally:
            self.qpus.leave(qpu, job)
        self._ended(hybrid, job.ledger.intervals())

    async def _drive(self, hybrid: HybridJob, job: JobContext, site: Site) -> None:
        name = self.setup.strategy
        journal: Any = NullJournal()
        performer = strategy(name, Assignment(site, job, hybrid.nodes), self._options)
        self._teach(performer.forecast)
        delayed = DriverDelay(self.world, performer, self._step)
        with job.ledger.span("run", "driver", name, rate=site.cluster.kind.whole_rate):
            try:
                await performer.open()
                await Replay(self.world, delayed, journal, job).play(program(hybrid))
            finally:
                await performer.close()


@dataclass(frozen=True)
class BatchHooks:
    """What to call with other users' jobs that start, and with those that a failure interrupts."""

    started: Started
    interrupted: Interrupted


def site_clusters(
    world: VirtualWorld,
    model: SiteModel,
    hooks: BatchHooks,
    others: Sequence[Iterable[Trace]] | None,
) -> tuple[list[Cluster], list[Cluster]]:
    """Return all clusters of a site, and for each partition the one that its hybrid jobs use."""
    owners = model.owners()
    traces = list(
        others or [part.background.chunks(part.nodes, part.cores) for part in model.parts()]
    )
    parts = model.parts()

    def cluster(number: int, part: SiteModel, kind: NodeKind | None = None) -> Cluster:
        """Make the cluster of a partition, for the jobs of all that share its nodes."""
        users = [n for n, owner in enumerate(owners) if owner == number]
        if not part.is_batch and not any(parts[n].is_batch for n in users):
            return cluster_of_kind(world, part, kind)
        jobs = merged([traces[n] for n in users])
        return BatchCluster(world, part, hooks.started, jobs, hooks.interrupted, kind)

    if model.kinds:
        names = model.names or list(model.kinds)
        numbers = [names.index(name) for name in model.kinds]
        pairs = zip(numbers, model.kind_parts(), strict=True)
        found = [cluster(number, part, kind) for number, (kind, part) in pairs]
        homes: list[Cluster] = [KindsCluster(found)] * len(owners)
    else:
        by_owner = {number: cluster(number, parts[number]) for number in sorted(set(owners))}
        found, homes = list(by_owner.values()), [by_owner[owner] for owner in owners]
    PartitionSync(world, found)
    return found, homes


def merged(traces: Sequence[Iterable[Trace]]) -> Iterable[Trace]:
    """Return the jobs of partitions that share nodes as those of one queue."""
    if len(traces) < 2:
        return traces[0] if traces else ()
    chunks = [chunk for trace in traces for chunk in trace]
    return Trace.merged(chunks).chunks() if chunks else ()


def strategy_options(model: SiteModel, setup: StrategySetup) -> dict[str, Any]:
    """Return the strategy's options; those of the setup override those of the site file."""
    known = {each.name: each for each in declared(STRATEGIES.load(setup.strategy).Options)}
    given = model.strategies.get(setup.strategy, {})
    for name in given:
        if name not in known:
            place = f"strategies.{setup.strategy}.{name}"
            options = ", ".join(known) or "none"
            raise UsageError(f"{place}: there is no such option; there are: {options}")
    from_site = {name: plugin_value(known[name], value) for name, value in given.items()}
    return from_site | dict(setup.options)


async def program(job: HybridJob) -> None:
    """Run the phases of a job, as a program that a strategy can drive."""
    for step in job.steps:
        phases: list[Classical | Quantum] = []
        if step.table:
            resized = task(resizable, step.table).on(1, step.table[-1][0], malleable=True)
            phases.append(classical(resized))
        elif step.tasks and step.nodes == 1:
            works = map(work_of, step.names) if step.names else repeat(work)
            phase = classical(*map(task, works, step.tasks))
            phases.append(phase if step.needs == WHOLE else phase.needs(**asdict(step.needs)))
        elif step.tasks:
            on_nodes = (task(shared, seconds).on(step.nodes) for seconds in step.tasks)
            phases.append(classical(*on_nodes))
        if step.quantum is not None:
            phases.append(quantum(Burst(step.quantum, 0)))
        await (together(*phases) if len(phases) > 1 else phases[0])


def work(seconds: float) -> None:
    """Run a task on one node."""
    pretend(seconds)


STEPS = 20
"""Steps of a malleable task; after each of them, its number of nodes may change."""


def resizable(table: Sequence[tuple[int, float]], job: Any = None) -> None:
    """Run a malleable task; on numbers that the table does not have, as on the next smaller one."""
    seconds = [each for nodes, each in table if nodes <= job.size][-1]
    for _ in job.steps(STEPS):
        pretend(seconds / STEPS)
        job.check()


@cache
def work_of(name: str) -> Callable[[float], None]:
    """Return `work` under the name of a program's own function."""

    def named(seconds: float) -> None:
        pretend(seconds)

    named.__qualname__ = name
    return named


def lessons(job: HybridJob, model: SiteModel) -> Teach:
    """Teach jobs what a static run of the program alone, such as a warm-up, lets them know."""
    forecasts: list[Forecast] = []
    setup = StrategySetup("static")
    Simulation(model, setup, lambda *_: None, teach=forecasts.append).run([job])
    known = forecasts[0].as_json()
    return lambda forecast: forecast.recall(known)


def shared(seconds: float, rank: int = 0, size: int = 1) -> None:
    """Run one rank of a task on several nodes."""
    pretend(seconds)


class DriverDelay:
    """A performer that waits before each phase, modelling the driver's delay between phases."""

    def __init__(self, world: VirtualWorld, performer: Strategy, seconds: float) -> None:
        self._world = world
        self._performer = performer
        self._seconds = seconds

    async def perform(self, phase: Phase, key: str) -> Any:
        """Wait, then run the phase."""
        if self._seconds:
            await self._world.sleep(self._seconds)
        return await self._performer.perform(phase, key)

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose as the strategy does."""
        return await self._performer.choose(phase, otherwise, key)


class SiteQpus:
    """The QPUs of a site, each with its own queue or all behind the vQPU service."""

    def __init__(self, world: World, model: SiteModel, vqpus: int) -> None:
        self._shared: SharedQpus | None = None
        self.all: Sequence[QueuedQpu | ServedQpu]
        if model.service is not None:
            self._shared = SharedQpus(world, model.qpu, model.service, vqpus)
            self.all = self._shared.qpus
        else:
            self.all = [QueuedQpu(world, vqpus, model.qpu, n) for n in range(model.qpu.number)]
        if model.qpu.licences is not None:
            licences = FifoSlots(world, model.qpu.licences)
            for qpu in self.all:
                qpu.admission = licences
        self._jobs = [0] * len(self.all)
        self.idle_wanted = 0.0
        """QPU-seconds during which a QPU was idle while a job waited to lease it."""

    @property
    def promises(self) -> PromiseCounts:
        """Counts of the promises that the service made and kept."""
        return self._shared.promises if self._shared else PromiseCounts()

    async def open(self) -> None:
        """Start the service, if there is one."""
        if self._shared is not None:
            await self._shared.open()

    async def close(self) -> None:
        """Stop the service, if there is one."""
        self.idle_wanted = sum(qpu.meter.idle() for qpu in self.all)
        if self._shared is not None:
            await self._shared.close()

    def choose(self) -> int:
        """Assign the next job to a QPU; return its index."""
        number = self._jobs.index(min(self._jobs))
        self._jobs[number] += 1
        return number

    def admit(self, number: int, job: JobContext, user: int, job_id: int) -> None:
        """Tell the service, if there is one, who owns the job."""
        qpu = self.all[number]
        if isinstance(qpu, ServedQpu):
            qpu.admit(job, Caller(f"user-{user}", job=job_id))

    def leave(self, number: int, job: JobContext) -> None:
        """Forget a finished job."""
        self._jobs[number] -= 1
        self.all[number].forget(job)


class QueuedQpu(MeteredQpu, ModelledQpu):
    """A QPU with its own queue."""

    def __init__(self, world: World, slots: int, model: QpuModel, number: int) -> None:
        super().__init__(world, Bursts(), UNTIMED, slots, model, number)
        self.meter = IdleMeter(world)

    def forget(self, job: JobContext) -> None:
        """Forget a finished job."""
        MeteredQpu.forget(self, job)
        ModelledQpu.forget(self, job)

    async def _solve(self, task: EmulatedTask) -> Any:
        with self.meter.working():
            return await super()._solve(task)
