"""Cluster kinds, which users name with `--cluster`; each has its own options and checks."""

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
from qtide.core.options import NoOptions, Option, chosen
from qtide.core.plugins import Plugins
from qtide.core.resources import EXAMPLE, WEIGHTS, check_size
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World

if TYPE_CHECKING:
    from qtide.backends.models.site_model import SiteModel

T = TypeVar("T")

DEFAULT_NODES = 3
CHARGED = Option(f"What the site charges for each second, as {WEIGHTS}.", None, "WEIGHTS")
OF_A_KIND = Option(f"Nodes of a kind, as {EXAMPLE}; repeatable.", None, "KIND")


@dataclass(frozen=True)
class Setting:
    """A run's cluster settings; in `local:4`, the kind is `local` and the argument `4`."""

    argument: str = ""
    nodes: int | None = None
    """Maximum number of nodes that a job may hold."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """The options of all plug-ins, by name."""

    def options(self, kind: type[T]) -> T:
        """The options of one kind of cluster."""
        return chosen(kind, self.given)

    def check_nodes(self, size: int) -> None:
        """Reject more nodes per job than the cluster has."""
        if self.nodes is not None and not 1 <= self.nodes <= size:
            raise UsageError(
                f"--nodes {self.nodes} does not fit: the cluster has {size}; give 1 to {size}, "
                f"or name a larger cluster with --cluster"
            )


@dataclass(frozen=True)
class Queue:
    """A cluster's queue now: real seconds until a request is granted, and a description."""

    wait: float
    words: str


@dataclass(frozen=True)
class StepJobs:
    """How a workflow engine runs workflow steps as batch jobs on a cluster."""

    system: str
    """The batch system, named as StreamFlow's connector for it."""
    directive: str
    """Prefix of option lines in a job script, such as `#SBATCH`."""
    classical: Sequence[str]
    """Options for a job that runs a task."""
    quantum: Sequence[str] | None = None
    """Options for a job that holds a QPU lease; None if the cluster grants no leases."""
    environment: Mapping[str, str] | None = None
    """The environment in which the engine submits jobs; None for its own."""


class ClusterKind(ABC):
    """A kind of cluster: checks settings, opens clusters and reports on runs."""

    summary: str
    """One line for the help text."""
    Options: type = NoOptions
    starts_commands = False
    """Whether its nodes can run commands, which malleable MPI programs need."""
    address: str | None = None
    """Address at which nodes reach this process; None for this host's address."""

    @abstractmethod
    def check(self, setting: Setting) -> None:
        """Reject a setting that cannot be opened, with an explanation."""

    @abstractmethod
    async def open(self, world: World, setting: Setting) -> Cluster:
        """Open the cluster; the output of a job's tasks goes to the job's log."""

    def world(self, time_scale: float) -> World:
        """The world whose clock the cluster uses."""
        return RealWorld(time_scale)

    def keeps_agents(self, setting: Setting) -> bool | None:
        """Whether a node that a job gave back starts at once for the next; None if unknown."""
        return None

    def described_site(self, setting: Setting) -> SiteModel | None:
        """The site's model if a file describes the cluster, otherwise None."""
        return None

    def size(self, setting: Setting) -> int | None:
        """How many nodes of one kind a job may hold; None if the cluster cannot say."""
        return None

    def queue(self, setting: Setting, nodes: int) -> Queue | None:
        """How long a request for `nodes` nodes would wait now; None if the cluster cannot say."""
        return None

    @staticmethod
    def accounts(
        job: JobContext, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
    ) -> dict[str, Any]:
        """A job's usage according to the site and to the ledger; empty without site accounting.

        `ended` lists site jobs that should be in the site's records by now.
        """
        return {}

    @staticmethod
    def ends(jobs: Collection[int], since: float) -> dict[int, float]:
        """End times of site jobs in seconds since 1970, as far as the site knows them."""
        return {}

    @staticmethod
    def others_waiting() -> int:
        """Number of waiting jobs that do not belong to this process; 0 if unknown."""
        return 0

    @staticmethod
    def own_job() -> str | None:
        """The site job that this process runs in; None if there is none."""
        return None

    @staticmethod
    def driver_state(job: str) -> str | None:
        """State of a driver that runs as a site job; None if the site cannot say."""
        return None

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """Start a driver as a site job; return where it runs."""
        raise UsageError("this cluster runs no driver as a job; --driver background does without")

    def step_jobs(self, setting: Setting, comment: str) -> StepJobs | None:
        """How a workflow engine submits steps; None if they run on the engine's own host.

        `comment` marks the jobs. Raises UsageError if no engine can submit to the cluster.
        """
        raise UsageError("no workflow engine can submit to this cluster; name another one")

    @staticmethod
    async def cancel_steps(comment: str) -> list[str]:
        """Cancel step jobs that a dead engine left behind; return their ids."""
        return []

    @staticmethod
    def step_node() -> str | None:
        """The site's name for the node that runs this step; None for the engine's host."""
        return None

    @staticmethod
    def reap() -> list[int]:
        """Cancel jobs that this user's dead drivers left behind; return their numbers."""
        return []


CLUSTERS: Plugins[type[ClusterKind]] = Plugins("qtide.clusters", "cluster")


def cluster_kind(cluster: str) -> tuple[ClusterKind, str]:
    """Split a cluster name such as `local:4` into its kind and its argument."""
    name, _, argument = cluster.partition(":")
    return CLUSTERS.load(name)(), argument


def numbered(kind: str, argument: str) -> int:
    """The number of nodes that an argument names, or the default."""
    if argument and not (argument.isdecimal() and int(argument) > 0):
        raise UsageError(f"a cluster's size is a number of nodes, as in {kind}:4, not {argument!r}")
    nodes = int(argument) if argument else DEFAULT_NODES
    check_size(nodes)
    return nodes
