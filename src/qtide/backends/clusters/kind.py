"""Kinds of clusters: what a user names after `--cluster`. Each owns its options and its checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qtide.backends.clusters.cluster import Cluster
from qtide.core.errors import UsageError
from qtide.core.job import JobContext
from qtide.core.metrics import Metrics
from qtide.core.options import NoOptions, chosen
from qtide.core.plugins import Plugins
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World

if TYPE_CHECKING:
    from qtide.backends.models.site_model import SiteModel

T = TypeVar("T")

DEFAULT_NODES = 3


@dataclass(frozen=True)
class Setting:
    """What a run chose for its cluster: `local:4` is the kind `local` with the argument `4`."""

    argument: str = ""
    nodes: int | None = None
    """The most nodes that a job may hold."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The options of all plug-ins, by name."""

    def options(self, kind: type[T]) -> T:
        """The options of one kind of cluster."""
        return chosen(kind, self.given)

    def check_nodes(self, size: int) -> None:
        """Refuse more nodes per job than the cluster has."""
        if self.nodes is not None and not 1 <= self.nodes <= size:
            raise UsageError(
                f"--nodes {self.nodes} does not fit: the cluster has {size}; give 1 to {size}, "
                f"or name a larger cluster with --cluster"
            )


@dataclass(frozen=True)
class Queue:
    """A cluster's queue now: real seconds until a request is granted, and a sentence about it."""

    wait: float
    words: str


@dataclass(frozen=True)
class StepJobs:
    """How a workflow engine runs the steps of a workflow as batch jobs of a cluster."""

    system: str
    """The batch system, as StreamFlow names its connector."""
    directive: str
    """What a line of a job's script begins with that holds an option, as `#SBATCH`."""
    classical: Sequence[str]
    """Options of a job that runs a task."""
    quantum: Sequence[str] | None = None
    """Options of a job that holds a lease of the QPU; None if the cluster grants no leases."""
    environment: Mapping[str, str] | None = None
    """The environment in which the engine submits; None for its own."""


class ClusterKind(ABC):
    """How a kind of cluster is checked and opened, and what it can tell about a run."""

    summary: str
    """A line for the help."""
    Options: type = NoOptions
    starts_commands = False
    """Whether commands can be started on its nodes, as malleable MPI programs need it."""
    address: str | None = None
    """Where its nodes reach this process; None for the address of this host."""

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Refuse a setting that cannot be opened, with a sentence."""

    @abstractmethod
    async def open(self, world: World, setting: Setting) -> Cluster:
        """Open the cluster; what a job's tasks print goes to the job's log."""

    def world(self, time_scale: float) -> World:
        """The world whose clock the cluster uses."""
        return RealWorld(time_scale)

    def described_site(self, setting: Setting) -> SiteModel | None:
        """The model of the site, if the cluster is one that a file describes."""
        return None

    def queue(self, setting: Setting, nodes: int) -> Queue | None:
        """How long a request for `nodes` would wait now; None if the cluster cannot say."""
        return None

    @staticmethod
    def accounts(
        job: JobContext, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
    ) -> dict[str, Any]:
        """What the site charges for a job, and what the ledger has; empty if it keeps no accounts.

        `ended` are jobs of the site that should be in its records by now.
        """
        return {}

    @staticmethod
    def ends(jobs: Collection[int], since: float) -> dict[int, float]:
        """When jobs of the site ended, in seconds since 1970, as far as it knows that."""
        return {}

    @staticmethod
    def others_waiting() -> int:
        """How many jobs that are not this process's wait for nodes; 0 if nobody can say."""
        return 0

    @staticmethod
    def own_job() -> str | None:
        """The job of the site that this process is part of; None if it is part of none."""
        return None

    @staticmethod
    def driver_state(job: str) -> str | None:
        """How the site sees a driver that is a job of its own; None if it cannot say."""
        return None

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """Start a driver as a job of the site; says where it is."""
        raise UsageError("this cluster runs no driver as a job; --driver background does without")

    def step_jobs(self, setting: Setting, comment: str) -> StepJobs | None:
        """How a workflow engine submits steps; None if they run on the engine's own host.

        `comment` marks the jobs. A cluster that no engine can submit to raises UsageError.
        """
        raise UsageError("no workflow engine can submit to this cluster; name another one")

    @staticmethod
    async def cancel_steps(comment: str) -> list[str]:
        """Cancel the jobs of steps that a dead engine left; returns their ids."""
        return []

    @staticmethod
    def step_node() -> str | None:
        """The site's name of the node that this step runs on; None if it is the engine's host."""
        return None

    @staticmethod
    def reap() -> list[int]:
        """Cancel jobs that dead drivers of this user left behind; returns their numbers."""
        return []


CLUSTERS: Plugins[type[ClusterKind]] = Plugins("qtide.clusters", "cluster")


def cluster_kind(cluster: str) -> tuple[ClusterKind, str]:
    """The kind and the argument that a word like `local:4` names."""
    name, _, argument = cluster.partition(":")
    return CLUSTERS.load(name)(), argument


def numbered(kind: str, argument: str) -> int:
    """The number of nodes that an argument gives."""
    if argument and not (argument.isdecimal() and int(argument) > 0):
        raise UsageError(f"a cluster's size is a number of nodes, as in {kind}:4, not {argument!r}")
    return int(argument) if argument else DEFAULT_NODES
