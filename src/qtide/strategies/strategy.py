"""Base class of all strategies: opening, running phases, leases, and closing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Any

from qtide.backends.clusters.cluster import Allocation, Cluster
from qtide.backends.leases.qpu import Lease, QpuBusy, QpuFailed
from qtide.core.errors import TimedOut
from qtide.core.forecasts import Forecast, PhaseShape
from qtide.core.job import JobContext
from qtide.core.options import NoOptions, chosen
from qtide.core.plugins import Plugins
from qtide.core.resources import WHOLE, Needs
from qtide.core.world.world import Future, World
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.replay import CandidateChoice, asked
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
        self.pool: NodePool = self.new_pool()
        self.pool.on_starving = self._lend_lease
        self.pool.demand = self.site.demand
        self.site.demand.watch(self.pool)
        self._lease: Lease | None = None
        self._renewal: Future[Lease] | None = None
        self._begun: dict[str, Future[None]] = {}
        """For each payload with a patience, a future that is done once the QPU has begun."""

    @abstractmethod
    async def open(self) -> None:
        """Acquire what is held from the start."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run a phase and record the phase order; refuse a bad payload before queueing anything."""
        if isinstance(phase, Classical):
            with self.forecast.phases.during(self.shape(phase), key):
                return await self.classical(phase, key)
        try:
            await self.site.qpu.check(phase.payload, phase.shots)
            with self.forecast.phases.during(self.shape(phase), key):
                return await self._patiently(phase, key)
        finally:
            self.site.qpu.announced.pop((self.job, key), None)

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """Choose the QPU or the task by their forecasts."""
        seconds = self.site.qpu.profile.seconds(phase.payload, phase.shots)
        work = self.forecast.tasks.known((otherwise.name, 0))
        wait, lead = await self.wait_for_qpu(), self.wait_for_nodes(otherwise.nodes)
        choice = Prospects(wait, seconds, lead, work).choice(phase.patience)
        if choice.chosen == "qpu":
            self.site.qpu.announced[self.job, key] = seconds
        return choice

    async def wait_for_qpu(self) -> float:
        """Expected seconds until the QPU begins a payload."""
        return await self.site.qpu.expected_wait(leased=self._lease is not None)

    def wait_for_nodes(self, nodes: int) -> float:
        """Expected seconds until a task for `nodes` nodes begins."""
        if self.pool.size < nodes:
            return self.forecast.lead(nodes)
        return 0.0 if len(self.pool.idle) >= nodes else self.forecast.tasks.remaining()

    def shape(self, phase: Phase) -> PhaseShape:
        """Describe a phase for the forecast."""
        if isinstance(phase, Quantum):
            return PhaseShape(asked(phase), quantum=True)
        singles = tuple(n for n, task in enumerate(phase.tasks) if task.nodes == 1)
        shares = [self.pool.share(phase.tasks[n]) for n in singles]
        parts = tuple(shares) if any(each < 1 for each in shares) else ()
        return PhaseShape(asked(phase), phase.label, singles, shares=parts)

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
        await self.pool.close()
        self.pool.on_starving = lambda: None  # break the reference cycle
        self.site.demand.forget(self.pool)
        if self._lease is not None:
            self._lease.release()
        if self.site.has_qpu:
            await self.site.qpu.admission.returned(self.job)

    async def take(self, nodes: int) -> None:
        """Acquire nodes and a lease together, to hold both for the whole run."""
        allocation = await self.request(nodes, co_allocate=self.site.qpu)
        self._lease = allocation.take_co_allocated()
        self.pool.join(allocation)

    def new_pool(self) -> NodePool:
        """Create an empty pool."""
        return NodePool(*self.resources())

    def resources(self) -> tuple[World, Cluster, JobContext, int, Forecast, Needs]:
        """What a pool works with."""
        site = self.site
        return site.world, site.cluster, self.job, self.nodes, self.forecast, self._needs

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
            if self.pool.starving:
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
                self.pool.keep_again()

    async def _give_way(self) -> None:
        await self.site.world.sleep(LEASE_PATIENCE)
        self.pool.give_way()

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
