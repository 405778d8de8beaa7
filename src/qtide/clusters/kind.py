"""Kinds of clusters: what `--cluster` names, each with its options and what it can do for a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from qtide.errors import UsageError
from qtide.jobs.job import Job
from qtide.ledger.metrics import Metrics
from qtide.options import NoOptions
from qtide.plugins import Plugins


class ClusterKind:
    """A kind of cluster; what it does not override, it cannot do."""

    summary: ClassVar[str] = ""
    """A few words, for the help."""
    Options: ClassVar[type] = NoOptions

    @staticmethod
    def accounts(job: Job, metrics: Metrics, scale: float, since: float) -> dict[str, Any]:
        """What the cluster charges for a job beside what it held; nothing if it does not charge."""
        return {}

    @staticmethod
    def driver_state(job: str) -> str | None:
        """How the cluster sees a driver that is a job of its own; None if it cannot be told."""
        return None

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """Start a driver as a job of the cluster; where it is, in words."""
        raise UsageError("this cluster runs no driver as a job; --driver background does without")

    @staticmethod
    def reap() -> list[int]:
        """Cancel jobs that dead drivers of this user left; which they were."""
        return []


CLUSTERS: Plugins[type[ClusterKind]] = Plugins("qtide.clusters", "cluster")
