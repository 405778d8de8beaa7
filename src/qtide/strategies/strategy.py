"""What every strategy is made of: the site it works on, its job, its opening and its closing."""

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

from qtide.backends.clusters.cluster import Allocation
from qtide.backends.leases.qpu import Lease, QpuBusy, QpuFailed
from qtide.core.errors import TimedOut
from qtide.core.forecasts import Forecast, PhaseShape
from qtide.core.job import JobContext
from qtide.core.options import NoOptions, chosen
from qtide.core.plugins import Plugins
from qtide.core.world.world import Future
from qtide.programs.phase import Classical, Phase, Quantum, Task
from qtide.programs.replay import CandidateChoice, asked
from qtide.strategies.node_pool import NodePool
from qtide.strategies.site import Site

FREE = 1.0
"""Seconds of waiting up to which a QPU counts as free."""


@dataclass(frozen=True)
class Prospects:
    """What is expected of a payload and of its classical equivalent, in seconds from now."""

    wait: float
    """Until the QPU begins; inf if nobody can say,"""
    busy: float
    """and how long it takes then."""
    lead: float
    """Until the task begins,"""
    work: float | None
    """and how long it takes then; None if it never ran."""

    def choice(self, patience: float | None) -> CandidateChoice:
        """The QPU or the task, by the user's patience or by what should end first."""
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
        """So that it will be known how long the task takes, where that matters."""
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
"""How often a payload is handed to a QPU that fails on it."""

LEASE_PATIENCE = 5.0
"""Seconds that idle nodes are held while the job waits for a lease."""

GRACE = 5.0
"""Real seconds beyond the patience: until a service has said that it has begun, for example."""


@dataclass(frozen=True)
class Assignment:
    """What a strategy is given to do: a job on a site, and the most nodes that it may hold."""

    site: Site
    job: JobContext
    nodes: int


class Strategy(ABC):
    """Decides which nodes and which lease are held when. Subclasses say so phase by phase."""

    summary: str
    """A line for the help."""
    rank = 50
    """Where it stands in tables: the baseline first."""
    Options: type = NoOptions

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        self.site = assignment.site
        self.job = assignment.job
        self.nodes = assignment.nodes
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
        """Of the payloads that may wait for so long only: whether the QPU has begun."""

    @abstractmethod
    async def open(self) -> None:
        """Take what is held from the start."""

    async def perform(self, phase: Phase, key: str) -> Any:
        """Run a phase, and learn from it what follows what; refuse it before anything is queued."""
        if isinstance(phase, Classical):
            with self.forecast.phases.during(shape(phase), key):
                return await self.classical(phase, key)
        try:
            await self.site.qpu.check(phase.payload, phase.shots)
            with self.forecast.phases.during(shape(phase), key):
                return await self._patiently(phase, key)
        finally:
            self.site.qpu.announced.pop((self.job, key), None)

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        """The QPU or the task, whichever the forecasts speak for."""
        seconds = self.site.qpu.profile.seconds(phase.payload, phase.shots)
        work = self.forecast.tasks.known((otherwise.name, 0))
        wait, lead = await self.wait_for_qpu(), self.wait_for_nodes(otherwise.nodes)
        choice = Prospects(wait, seconds, lead, work).choice(phase.patience)
        if choice.chosen == "qpu":
            self.site.qpu.announced[self.job, key] = seconds
        return choice

    async def wait_for_qpu(self) -> float:
        """How long it should take until the QPU begins with a payload."""
        return await self.site.qpu.expected_wait(leased=self._lease is not None)

    def wait_for_nodes(self, nodes: int) -> float:
        """How long it should take until a task for so many nodes begins."""
        if self.pool.size < nodes:
            return self.forecast.lead(nodes)
        return 0.0 if len(self.pool.idle) >= nodes else self.forecast.tasks.remaining()

    @abstractmethod
    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks of a phase on nodes."""

    @abstractmethod
    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload of a phase on the QPU."""

    async def _patiently(self, phase: Quantum, key: str) -> Any:
        """Run a payload, or give it up if the QPU does not begin within the patience."""
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
        """Give everything back."""
        await self.pool.close()
        self.pool.on_starving = lambda: None  # or they would know each other, to be collected
        self.site.demand.forget(self.pool)
        if self._lease is not None:
            self._lease.release()
        if self.site.has_qpu:
            await self.site.qpu.admission.returned(self.job)

    async def take(self, nodes: int) -> None:
        """Take nodes and a lease at the same moment, to hold both for the whole run."""
        allocation = await self.request(nodes, co_allocate=self.site.qpu)
        self._lease = allocation.take_co_allocated()
        self.pool.join(allocation)

    def new_pool(self) -> NodePool:
        """A pool without nodes."""
        return NodePool(self.site.world, self.site.cluster, self.job, self.nodes, self.forecast)

    async def request(self, nodes: int, **terms: Any) -> Allocation:
        """Ask the cluster for nodes for this job."""
        return await self.site.cluster.request(self.job, nodes, **terms)

    async def solve(self, lease: Lease, phase: Quantum, key: str) -> Any:
        """Run a payload, again if the QPU fails; all of that within the limit of the phase."""
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
        """The seed is the phase's: always the same."""
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
        """Run a payload on the lease that is held for the whole run."""
        lease = self._lease or await self._renewed_lease()
        try:
            return await self.solve(lease, phase, key)
        finally:
            if self.pool.starving:
                self._lend_lease()

    async def _renewed_lease(self) -> Lease:
        """The lease again, after it was lent: phases that run together wait for the same one."""
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
        """Wait for a lease; who waits for long holds no idle node that others may wait for."""
        lease = self.site.qpu.take(self.job)
        if lease is not None:
            return lease
        giving_way = self.site.world.start(self._give_way())
        try:
            return await self.site.qpu.lease(self.job)
        finally:
            if not giving_way.cancel():  # it has given way already
                self.pool.keep_again()

    async def _give_way(self) -> None:
        await self.site.world.sleep(LEASE_PATIENCE)
        self.pool.give_way()

    def _lend_lease(self) -> None:
        """The pool has to wait for nodes: whoever has them may be waiting for our lease."""
        if self._lease is not None and self._lease.outlook is None:
            self._lease.release()
            self._lease = None

    @asynccontextmanager
    async def leased(self) -> AsyncIterator[Lease]:
        """A lease for as long as one phase takes."""
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
    """The strategy of that name, with its own out of the given options."""
    kind = STRATEGIES.load(name)
    return kind(assignment, chosen(kind.Options, given))


def shape(phase: Phase) -> PhaseShape:
    """A phase as the forecast knows it."""
    if isinstance(phase, Quantum):
        return PhaseShape(asked(phase), quantum=True)
    singles = tuple(n for n, task in enumerate(phase.tasks) if task.nodes == 1)
    return PhaseShape(asked(phase), phase.label, singles)


def seed_of(job: JobContext, key: str) -> int:
    """A seed that depends on nothing but the job's seed and the phase's place."""
    digest = blake2b(f"{job.seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
