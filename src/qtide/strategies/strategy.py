"""Base class of all strategies: opening, running phases, leases, and closing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from math import inf
from typing import Any

from qtide.backends.clusters.cluster import Allocation, Cluster
from qtide.backends.leases.qpu import Lease, QpuBusy, QpuFailed
from qtide.core.errors import NotEnoughNodes, TimedOut
from qtide.core.forecasts import Forecast, PhaseShape
from qtide.core.job import JobContext
from qtide.core.options import NoOptions, chosen
from qtide.core.plugins import Plugins
from qtide.core.resources import WHOLE, Needs
from qtide.core.world.world import Future, World
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.replay import CandidateChoice, asked
from qtide.strategies.malleable_task import step_of
from qtide.strategies.node_pool import NodePool
from qtide.strategies.site import Site

FREE = 1.0
"""A QPU counts as free if the expected wait is at most this many seconds."""


@dataclass(frozen=True)
class Prospects:
    """Forecast for a payload and its classical equivalent, in seconds."""

    wait: float
    """Time until the QPU begins; inf if unknown."""
    busy: float
    """Time the QPU then takes."""
    lead: float
    """Time until the task begins."""
    work: float | None
    """Time the task then takes; None if it never ran."""

    def choice(self, patience: float | None) -> CandidateChoice:
        """Choose the QPU or the task, by the user's patience or by which should end first."""
        if self.wait == inf:
            return CandidateChoice("task", "nobody can say when the QPU is back")
        if patience is not None:
            return self._by_patience(patience)
        if self.work is None:
            return self._by_what_is_free()
        return self._by_end(self.lead + self.work)

    def _by_patience(self, patience: float) -> CandidateChoice:
        said = f"the QPU should begin in {self.wait:.1f} s, and may in {patience:g} s"
        if self.wait <= patience:
            return CandidateChoice("qpu", said, patience)
        return CandidateChoice("task", said)

    def _by_what_is_free(self) -> CandidateChoice:
        """Use the QPU if it is free; otherwise run the task, which also shows how long it takes."""
        said = f"the QPU should begin in {self.wait:.1f} s; how long the task takes is not known"
        return CandidateChoice("qpu" if self.wait <= FREE else "task", said)

    def _by_end(self, task: float) -> CandidateChoice:
        qpu = self.wait + self.busy
        said = f"the QPU should end in {qpu:.1f} s, the task in {task:.1f} s"
        return (
            CandidateChoice("qpu", said, max(FREE, task))
            if qpu <= task
            else CandidateChoice("task", said)
        )


TRIES = 3
"""Attempts per payload if the QPU fails."""

LEASE_PATIENCE = 5.0
"""Seconds a job waiting for a lease keeps its idle nodes."""

GRACE = 5.0
"""Extra real seconds beyond the patience, e.g. for a service to report that it has begun."""


@dataclass(frozen=True)
class Assignment:
    """A job on a site, and the maximum number of nodes it may hold."""

    site: Site
    job: JobContext
    nodes: int
    needs: Needs = WHOLE
    """What a task needs that says nothing."""


class Strategy(ABC):
    """Decides when to hold which nodes and which lease. Subclasses decide phase by phase."""

    summary: str
    """One line for the help."""
    rank = 50
    """Position in tables; the baseline comes first."""
    Options: type = NoOptions

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        self.site = assignment.site
        self.job = assignment.job
        self.nodes = assignment.nodes
        self._needs = assignment.needs
        self.options = self.Options() if options is None else options
        cluster = self.site.cluster
        now, warm = self.site.world.now, cluster.keeps_agents
        self.forecast = Forecast(now, cluster.expected_wait, cluster.waits_seen, warm=warm)
        if self.job.preparation.seconds is not None:  # an earlier run of the program knows it
            self.forecast.node_started(self.job.preparation.seconds)
        self.pools: dict[str, NodePool] = {name: self.new_pool(name) for name in cluster.kinds}
        """For each kind of nodes, those that the job holds."""
        self.pool = self.pools[cluster.kind.name]
        """The nodes of the usual kind."""
        for name, pool in self.pools.items():
            pool.on_starving = partial(self._while_starving, pool)
            pool.on_fed = partial(self._fed, pool)
            pool.demand = self.site.demand_for(name)
            pool.demand.register(pool)
        self._lease: Lease | None = None
        self._renewal: Future[Lease] | None = None
        self._begun: dict[str, Future[None]] = {}
        """For each payload with a patience, a future that is done once the QPU has begun."""

    async def begin(self) -> None:
        """Acquire what is held from the start, unless no node has what tasks need by default."""
        who = "each task that says nothing itself"
        self.pools[self._kind_for(self._needs, who)].kind.refuse_if_impossible(self._needs, who)
        await self.open()

    @abstractmethod
    async def open(self) -> None:
        """Acquire what is held from the start."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run a phase and record the phase order; refuse a bad payload before queueing anything."""
        if isinstance(phase, Classical):
            phase = self._sized(phase)
            with self.forecast.phases.during(self.shape(phase), key):
                results = await self.classical(phase, key)
            self._learn_sizes(phase)
            return results
        try:
            await self.site.qpu.check(phase.payload, phase.shots)
            with self.forecast.phases.during(self.shape(phase), key):
                return await self._patiently(phase, key)
        finally:
            self.site.qpu.announced.pop((self.job, key), None)

    def _sized(self, phase: Classical) -> Classical:
        """Choose the sizes of tasks that may run on different numbers of nodes."""
        if all(task.most is None for task in phase.tasks):
            return phase
        return Classical(tuple(map(self._sized_task, phase.tasks)))

    def _sized_task(self, task: Task[Any]) -> Task[Any]:
        if task.most is None:
            return task
        most = min(task.most, self.pools[self.kind_of(task)].most)
        sizes = range(task.nodes, max(task.nodes, most) + 1)
        terms = self.time_weight, self.charge(self.kind_of(task))
        tasks = self.forecast.tasks
        if not task.malleable:
            return replace(task, nodes=tasks.best_size(task.name, sizes, *terms))
        if self.time_weight == 1 or len(tasks.by_size(step_of(task), sizes)) < 2:
            return task
        return replace(task, most=tasks.best_size(step_of(task), sizes, *terms))

    def _learn_sizes(self, phase: Classical) -> None:
        for n, task in enumerate(phase.tasks):
            if task.most is not None and not task.malleable:
                seconds = self.forecast.tasks.last((phase.label, n))
                self.forecast.tasks.learn_size(task.name, task.nodes, seconds)

    @property
    def time_weight(self) -> float:
        """Weight of a second of the job; a node-second weighs one minus this.

        By default only the job's time counts, as its nodes are held anyway.
        """
        return 1.0

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose the QPU or the task by their forecasts."""
        seconds = self.site.qpu.profile.seconds(phase.payload, phase.shots)
        work = self.forecast.tasks.known((otherwise.name, 0))
        wait, lead = await self.wait_for_qpu(), self.wait_for_nodes(otherwise)
        choice = Prospects(wait, seconds, lead, work).choice(phase.patience)
        if choice.chosen == "qpu":
            self.site.qpu.announced[self.job, key] = seconds
        return choice

    async def wait_for_qpu(self) -> float:
        """Expected seconds until the QPU begins a payload."""
        return await self.site.qpu.expected_wait(leased=self._lease is not None)

    def wait_for_nodes(self, task: Task[Any]) -> float:
        """Expected seconds until a task begins."""
        pool = self.pools[self.kind_of(task)]
        if pool.size < task.nodes:
            return pool.forecast.lead(task.nodes)
        return 0.0 if len(pool.idle) >= task.nodes else self.forecast.tasks.remaining()

    def kind_of(self, task: Task[Any]) -> str:
        """The kind of nodes that a task needs; refuse one that the cluster does not have."""
        return self._kind_for(task.needs_of(self._needs), f"the task {task.name}")

    def _kind_for(self, needs: Needs, who: str) -> str:
        kind = needs.kind or self.pool.kind.name
        if kind not in self.pools:
            there = ", ".join(str(pool.kind) for pool in self.pools.values())
            raise NotEnoughNodes(
                f"{who} needs a node of kind {kind!r}, but the cluster has: {there}"
            )
        return kind

    def by_kind(self, phase: Classical) -> dict[str, list[int]]:
        """The numbers of a phase's tasks, by the kind of nodes that they need."""
        found: dict[str, list[int]] = {}
        for n, task in enumerate(phase.tasks):
            found.setdefault(self.kind_of(task), []).append(n)
        return found

    def run_tasks(self, phase: Classical, key: str) -> KindsWork:
        """Run a phase's tasks on the nodes held, of whatever kind."""
        numbers = self.by_kind(phase)
        works = {kind: self.pools[kind].run(phase, key, each) for kind, each in numbers.items()}
        return KindsWork(self.site.world, numbers, works)

    @property
    def busy(self) -> bool:
        """Whether a classical phase is running."""
        return any(pool.unfinished for pool in self.pools.values())

    def shape(self, phase: Phase) -> PhaseShape:
        """Describe a phase for the forecast."""
        if isinstance(phase, Quantum):
            return PhaseShape(asked(phase), quantum=True)
        singles = tuple([n for n, task in enumerate(phase.tasks) if task.nodes == 1])
        wide = [task for task in phase.tasks if task.nodes > 1]
        together = tuple(chain.from_iterable([self.kind_of(each)] * each.nodes for each in wide))
        if self._needs.whole and not any(task.resources for task in phase.tasks):
            return PhaseShape(asked(phase), phase.label, singles, together=together)
        kinds = tuple(self.kind_of(phase.tasks[n]) for n in singles)
        pairs = zip(kinds, singles, strict=True)
        shares = tuple(self.pools[kind].share(phase.tasks[n]) for kind, n in pairs)
        if all(each == 1 for each in shares):
            shares = ()
        if all(each == self.pool.kind.name for each in kinds):
            kinds = ()
        return PhaseShape(asked(phase), phase.label, singles, False, shares, kinds, together)

    @abstractmethod
    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run a phase's tasks on nodes."""

    @abstractmethod
    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run a phase's payload on the QPU."""

    async def _patiently(self, phase: Quantum, key: str) -> Any:
        """Run a payload; give up if the QPU does not begin within the patience."""
        if phase.patience is None:
            return await self.quantum(phase, key)
        world = self.site.world
        begun = self._begun[key] = world.future()
        work = world.start(self.quantum(phase, key))
        alarm = world.start(world.sleep(phase.patience + world.counted(GRACE)))
        try:
            first = await world.first_of([work, begun, alarm])
            if first is alarm:
                self.site.qpu.waited_in_vain(phase.patience)
                raise QpuBusy(f"the QPU had not begun within its {phase.patience:g} s")
            await world.settled([work])
            return work.result()
        finally:
            del self._begun[key]
            await world.cancel([work, alarm])

    def _begin(self, key: str) -> None:
        begun = self._begun.get(key)
        if begun is not None and not begun.done():
            begun.set_result(None)

    async def close(self) -> None:
        """Release everything."""
        for pool in self.pools.values():
            await pool.close()
            pool.on_starving = pool.on_fed = lambda: None  # break the reference cycle
            pool.demand.forget(pool)
        if self._lease is not None:
            self._lease.release()
        if self.site.has_qpu:
            await self.site.qpu.admission.returned(self.job)

    async def take(self, nodes: int) -> None:
        """Acquire nodes and a lease together, to hold both for the whole run."""
        allocation = await self.request(nodes, co_allocate=self.site.qpu)
        self._lease = allocation.take_co_allocated()
        self.pool.join(allocation)

    async def take_other_kinds(self) -> None:
        """Acquire all nodes of the other kinds, in the order that all jobs keep."""
        for pool in self.pools.values():
            if pool is not self.pool:
                pool.join(await pool.cluster.request(self.job, pool.most))

    def new_pool(self, kind: str) -> NodePool:
        """Create an empty pool for nodes of a kind."""
        return NodePool(*self.resources(kind))

    def charge(self, kind: str) -> float:
        """What the site charges for a second of a node of a kind, the usual kind's being 1."""
        return self.site.cluster.kinds[kind].kind.charge(self.site.cluster.kind)

    def resources(self, kind: str) -> tuple[World, Cluster, JobContext, int, Forecast, Needs]:
        """What a pool for nodes of a kind works with."""
        site, forecast, most = self.site, self.forecast, self.nodes
        cluster = site.cluster.kinds[kind]
        if len(site.cluster.kinds) > 1:
            most = min(most, cluster.size)
            forecast = forecast.of_kind(cluster.expected_wait, cluster.waits_seen)
        return site.world, cluster, self.job, most, forecast, self._needs

    async def request(self, nodes: int, **terms: Any) -> Allocation:
        """Request nodes from the cluster for this job."""
        return await self.site.cluster.request(self.job, nodes, **terms)

    async def solve(self, lease: Lease, phase: Quantum, key: str) -> Any:
        """Run a payload, retrying if the QPU fails, within the phase's time limit."""
        work = self._solve(lease, phase, key)
        if phase.limit is None:
            return await work
        try:
            return await self.site.world.timeout(phase.limit, work)
        except TimeoutError:
            raise TimedOut(
                f"the QPU had no answer to the {phase.label} within {phase.limit:g} s"
            ) from None

    async def _solve(self, lease: Lease, phase: Quantum, key: str) -> Any:
        """Run a payload with retries; every attempt uses the same seed."""
        seed = seed_of(self.job, key) if phase.seed is None else phase.seed
        terms = (phase.payload, phase.shots, seed, partial(self._begin, key))
        self.site.qpu.announced.pop((self.job, key), None)
        if not phase.starting():
            raise CancelledError
        for _ in range(TRIES - 1):
            try:
                return await lease.run(*terms)
            except QpuFailed:
                continue
        return await lease.run(*terms)

    async def solve_on_own_lease(self, phase: Quantum, key: str) -> Any:
        """Run a payload on the lease held for the whole run."""
        lease = self._lease or await self._renewed_lease()
        try:
            return await self.solve(lease, phase, key)
        finally:
            if any(pool.starving for pool in self.pools.values()):
                self._lend_lease()

    async def _renewed_lease(self) -> Lease:
        """Get the lease back after lending it; concurrent phases share one request."""
        if self._renewal is None:
            self._renewal = self.pool.start(self._renew_lease())
        renewal = self._renewal
        await self.site.world.settled([renewal])
        return renewal.result()

    async def _renew_lease(self) -> Lease:
        self._lease = await self._leased()
        self._renewal = None
        return self._lease

    async def _leased(self) -> Lease:
        """Wait for a lease; after `LEASE_PATIENCE`, release idle nodes that others may need."""
        lease = self.site.qpu.take(self.job)
        if lease is not None:
            return lease
        giving_way = self.site.world.start(self._give_way())
        try:
            return await self.site.qpu.lease(self.job)
        finally:
            if not giving_way.cancel():  # it has already given way
                for pool in self.pools.values():
                    pool.keep_again()

    async def _give_way(self) -> None:
        await self.site.world.sleep(LEASE_PATIENCE)
        for pool in self.pools.values():
            pool.give_way()

    def _while_starving(self, starving: NodePool) -> None:
        """Release what other jobs may wait for while one kind of nodes is waited for."""
        self._lend_lease()
        for pool in self.pools.values():
            if pool is not starving:
                pool.give_way()

    def _fed(self, starving: NodePool) -> None:
        for pool in self.pools.values():
            if pool is not starving:
                pool.keep_again()

    def _lend_lease(self) -> None:
        """Release the lease while the pool waits for nodes: their holder may be waiting for it."""
        if self._lease is not None and self._lease.outlook is None:
            self._lease.release()
            self._lease = None

    @asynccontextmanager
    async def leased(self) -> AsyncIterator[Lease]:
        """Hold a lease for one phase."""
        lease = await self._leased()
        try:
            yield lease
        finally:
            lease.release()


class KindsWork:
    """A phase's tasks, as one coroutine for each kind of nodes; awaiting it returns the results."""

    def __init__(
        self,
        world: World,
        numbers: Mapping[str, list[int]],
        works: Mapping[str, Coroutine[Any, Any, list[Any]]],
    ) -> None:
        self._world = world
        self._numbers = numbers
        self._works = works

    def close(self) -> None:
        """Drop the tasks if they have not begun."""
        for work in self._works.values():
            work.close()

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        return self._results().__await__()

    async def _results(self) -> list[Any]:
        found = await self._world.all_of(self._works.values())
        if len(found) == 1:
            return found[0]
        pairs = zip(self._numbers.values(), found, strict=True)
        by_number = {n: each for ns, results in pairs for n, each in zip(ns, results, strict=True)}
        return [by_number[n] for n in sorted(by_number)]


STRATEGIES: Plugins[type[Strategy]] = Plugins("qtide.strategies", "strategy")


def strategy_names() -> list[str]:
    """All strategies, the baseline first."""
    return sorted(STRATEGIES.names(), key=lambda name: (STRATEGIES.load(name).rank, name))


def strategy(name: str, assignment: Assignment, given: Mapping[str, Any]) -> Strategy:
    """Create the named strategy with those of the given options that it declares."""
    kind = STRATEGIES.load(name)
    return kind(assignment, chosen(kind.Options, given))


def seed_of(job: JobContext, key: str) -> int:
    """A seed derived only from the job's seed and the phase's key."""
    digest = blake2b(f"{job.seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
