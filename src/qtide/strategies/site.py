"""A site: where jobs run. A world, a cluster and a QPU, for one or several of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from qtide.clusters.cluster import Cluster
from qtide.leases.qpu import Qpu
from qtide.strategies.demand import Demand
from qtide.world.world import World


@runtime_checkable
class Admitting(Protocol):
    """A cluster that may give the leases of a QPU as well as nodes."""

    def admit(self, qpu: Qpu) -> None:
        """Be asked for the leases of a QPU from now on."""


@dataclass(frozen=True)
class Site:
    """What strategies have to do with."""

    world: World
    cluster: Cluster
    qpu: Qpu
    demand: Demand = field(default_factory=Demand)

    def __post_init__(self) -> None:
        """Let the cluster know of the QPU beside it."""
        if isinstance(self.cluster, Admitting):
            self.cluster.admit(self.qpu)
