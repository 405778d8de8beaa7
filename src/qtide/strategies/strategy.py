"""What every strategy is made of: the site it works on, its terms, its opening and closing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, ClassVar

from qtide.clusters.cluster import Allocation, Cluster
from qtide.jobs.job import Job
from qtide.leases.qpu import Lease, Qpu, QpuFailed
from qtide.options import NoOptions
from qtide.plugins import Plugins
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.node_pool import NodePool
from qtide.world.world import Future, World

TRIES = 3
"""How often a payload is handed to a QPU that fails on it."""


@dataclass(frozen=True)
class Site:
    """Where a job runs."""

    world: World
    cluster: Cluster
    qpu: Qpu
    job: Job


@dataclass(frozen=True)
class Terms:
    """What the user says about the trade between time and nodes. Times in seconds."""

    nodes: int
    """The most nodes the job may hold."""
    expand_timeout: float = 5.0
    """How long `malleable` waits for more nodes before it goes on with what it has."""
    favour: float = 0.5
    """What `elastic` weighs more: 0 is nodes alone, 1 is time alone."""
    idle_share: float = 0.1
    """How long a node that `elastic` asked for too early may idle, as a share of its next use."""


class Strategy(ABC):
    """Decides which nodes and which lease are held when. Heirs say so phase by phase."""

    summary: ClassVar[str] = ""
    """A few words, for the help."""
    Options: ClassVar[type] = NoOptions

    def __init__(self, site: Site, terms: Terms) -> None:
        self.site = site
        self.terms = terms
        self.pool: NodePool = self.new_pool()
        self.pool.on_starving = self._lend_lease
        self._lease: Lease | None = None
        self._renewal: Future[Lease] | None = None

    @abstractmethod
    async def open(self) -> None:
        """Take what is held from the start."""

    @abstractmethod
    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks of a phase on nodes."""

    @abstractmethod
    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload of a phase on the QPU."""

    async def close(self) -> None:
        """Give everything back."""
        await self.pool.dismiss()
        if self._lease is not None:
            self._lease.release()

    async def take(self, nodes: int) -> None:
        """Take nodes and a lease at the same moment, to hold both for the whole run."""
        allocation = await self.request(nodes, beside=self.site.qpu)
        self._lease = allocation.take_beside()
        self.pool.join(allocation)

    def new_pool(self) -> NodePool:
        """A pool without nodes."""
        return NodePool(self.site.world, self.site.cluster, self.site.job, self.terms.nodes)

    async def request(self, nodes: int, **terms: Any) -> Allocation:
        """Ask the cluster for nodes for this job."""
        return await self.site.cluster.request(self.site.job, nodes, **terms)

    async def solve(self, lease: Lease, phase: Quantum, key: str) -> Any:
        """Run a payload, again if the QPU fails. The seed is the phase's: always the same."""
        seed = seed_of(self.site.job, key)
        for _ in range(TRIES - 1):
            try:
                return await lease.run(phase.payload, phase.shots, seed)
            except QpuFailed:
                continue
        return await lease.run(phase.payload, phase.shots, seed)

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
            self._renewal = self.pool.errand(self._renew_lease())
        renewal = self._renewal
        await self.site.world.settled([renewal])
        return renewal.result()

    async def _renew_lease(self) -> Lease:
        self._lease = await self.site.qpu.lease(self.site.job)
        self._renewal = None
        return self._lease

    def _lend_lease(self) -> None:
        """The pool has to wait for nodes: whoever has them may be waiting for our lease."""
        if self._lease is not None and self._lease.outlook is None:
            self._lease.release()
            self._lease = None

    @asynccontextmanager
    async def leased(self) -> AsyncIterator[Lease]:
        """A lease for as long as one phase takes."""
        lease = await self.site.qpu.lease(self.site.job)
        try:
            yield lease
        finally:
            lease.release()


STRATEGIES: Plugins[type[Strategy]] = Plugins("qtide.strategies", "strategy")


def seed_of(job: Job, key: str) -> int:
    """A seed that depends on nothing but the job's seed and the phase's place."""
    digest = blake2b(f"{job.seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
