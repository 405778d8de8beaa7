"""A site, where one or several jobs run: a world, a cluster and a QPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from qtide.backends.clusters.cluster import Cluster
from qtide.backends.leases.qpu import Qpu
from qtide.core.world.world import World


class Pool(Protocol):
    """A job's node pool."""

    @property
    def size(self) -> int:
        """Number of nodes held."""

    @property
    def stands_still(self) -> bool:
        """Whether its job has waiting tasks and no node."""


class Demand:
    """Tracks the pools of all jobs, and notifies the others when one stands still."""

    def __init__(self) -> None:
        self._pools: dict[Pool, None] = {}
        self._watching: dict[Pool, Callable[[], None]] = {}
        self._standing: dict[Pool, None] = {}
        """Pools that have said that they stand still; some may have gone on since."""

    def register(self, pool: Pool) -> None:
        """Count a pool as one that may hold nodes."""
        self._pools[pool] = None

    def watch(self, pool: Pool, changed: Callable[[], None]) -> None:
        """Call `changed` when another job stands still, until `unwatch`."""
        self._watching[pool] = changed

    def unwatch(self, pool: Pool) -> None:
        """End one `watch`."""
        self._watching.pop(pool, None)

    def forget(self, pool: Pool) -> None:
        """Unregister a pool."""
        for pools in (self._pools, self._watching, self._standing):
            pools.pop(pool, None)

    def price(self, pool: Pool, size: int) -> float:
        """Seconds that other jobs lose for each second a pool keeps an idle node.

        A released node goes to one of them with the probability that a node of the cluster is held
        by a registered job; and each job standing still advances by one `size`-th of a second.
        """
        standing = 0
        for each in [*self._standing]:
            if not each.stands_still:
                del self._standing[each]
            elif each is not pool:
                standing += 1
        if not standing:
            return 0.0
        ours = sum(each.size for each in self._pools)
        return (min(size, ours) + standing) / max(1, size)

    def stands_still(self, pool: Pool) -> None:
        """Notify the other pools that a job has begun to stand still."""
        self._standing[pool] = None
        for other, changed in [*self._watching.items()]:
            if other is not pool:
                changed()


@runtime_checkable
class Admitting(Protocol):
    """A cluster that can grant QPU leases as well as nodes."""

    def admit(self, qpu: Qpu) -> None:
        """Handle lease requests for a QPU from now on."""


class Site:
    """The resources strategies work with; the QPU may be built when first needed."""

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        qpu: Qpu | Callable[[], Qpu],
        demand: Demand | None = None,
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.demand = demand or Demand()
        self._demands = {cluster.kind.name: self.demand}
        self._build: Callable[[], Qpu] | None = None
        self._qpu: Qpu | None = None
        if isinstance(qpu, Qpu):
            self._admit(qpu)
        else:
            self._build = qpu

    def demand_for(self, kind: str) -> Demand:
        """The demand of all jobs for nodes of one kind."""
        return self._demands.setdefault(kind, Demand())

    @property
    def has_qpu(self) -> bool:
        """Whether the QPU has been built."""
        return self._qpu is not None

    @property
    def qpu(self) -> Qpu:
        """The QPU, built on first use."""
        if self._qpu is None:
            assert self._build is not None
            return self._admit(self._build())
        return self._qpu

    def _admit(self, qpu: Qpu) -> Qpu:
        """Tell the cluster about the QPU: it may grant its leases."""
        self._qpu = qpu
        usual = next(iter(self.cluster.kinds.values()))
        if isinstance(usual, Admitting):
            usual.admit(qpu)
        return qpu
