"""A site: where jobs run. A world, a cluster and a QPU, for one or several of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from qtide.backends.clusters.cluster import Cluster
from qtide.backends.leases.qpu import Qpu
from qtide.core.world.world import World


class Pool(Protocol):
    """The node pool of a job."""

    @property
    def size(self) -> int:
        """How many nodes it holds."""

    @property
    def stands_still(self) -> bool:
        """Whether its job has tasks to do and no node."""


class Demand:
    """Knows the pools of all jobs, and tells whoever keeps a node when one stands still."""

    def __init__(self) -> None:
        self._pools: dict[Pool, Callable[[], None]] = {}

    def watch(self, pool: Pool, changed: Callable[[], None] = lambda: None) -> None:
        """Count a job in, and call `changed` when another one begins to stand still."""
        self._pools[pool] = changed

    def forget(self, pool: Pool) -> None:
        """The job is over."""
        self._pools.pop(pool, None)

    def price(self, pool: Pool, size: int) -> float:
        """How many seconds other jobs lose for each second that a pool keeps an idle node.

        A node that is given back goes to one of them as likely as a node of the cluster is ours,
        and everybody in the queue moves up by as much as one node of the cluster does in a second.
        """
        standing = sum([each.stands_still for each in self._pools if each is not pool])
        if not standing:
            return 0.0
        ours = sum(each.size for each in self._pools)
        return (min(size, ours) + standing) / max(1, size)

    def stands_still(self, pool: Pool) -> None:
        """A job has begun to stand still."""
        for other, changed in list(self._pools.items()):
            if other is not pool:
                changed()


@runtime_checkable
class Admitting(Protocol):
    """A cluster that may give the leases of a QPU as well as nodes."""

    def admit(self, qpu: Qpu) -> None:
        """Be asked for the leases of a QPU from now on."""


class Site:
    """What strategies have to do with; the QPU may be built when the first phase needs it."""

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
        self._build: Callable[[], Qpu] | None = None
        self._qpu: Qpu | None = None
        if isinstance(qpu, Qpu):
            self._admit(qpu)
        else:
            self._build = qpu

    @property
    def has_qpu(self) -> bool:
        """Whether the QPU is there already."""
        return self._qpu is not None

    @property
    def qpu(self) -> Qpu:
        """The QPU, built now if nobody has needed it before."""
        if self._qpu is None:
            assert self._build is not None
            return self._admit(self._build())
        return self._qpu

    def _admit(self, qpu: Qpu) -> Qpu:
        """Let the cluster know of the QPU beside it: it may grant its leases."""
        self._qpu = qpu
        if isinstance(self.cluster, Admitting):
            self.cluster.admit(qpu)
        return qpu
