"""`--cluster slurm`: what its user may choose, and how a stock Slurm becomes a cluster."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from qtide.backends.clusters.kind import ClusterKind, Queue, Setting
from qtide.backends.clusters.slurm.accounting import accounts, when_ended
from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.companion_options import ADMISSION, CompanionOptions
from qtide.backends.clusters.slurm.mark import reap
from qtide.backends.clusters.slurm.queue import entries, present
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.errors import QtideError, UsageError
from qtide.core.job import JobContext
from qtide.core.metrics import Metrics
from qtide.core.options import Option
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World

LIMIT = 60.0
"""Seconds that sbatch has to answer in."""


def driver_state(job: str) -> str | None:
    """How Slurm sees a driver that is a job of its own; None if it cannot be told."""
    try:
        found = asyncio.run(entries(Slurm(), f"--jobs={job}", "--states=all"))
    except QtideError:
        return None
    return found[0].state if found else None


def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
    """Start a driver as a small batch job, which needs no node to itself; where it is, in words."""
    script = f"#!/bin/sh\nexec {shlex.join(command)}\n"
    words = ["sbatch", "--parsable", "--ntasks=1", f"--job-name=qtide-driver-{name}"]
    words += [f"--output={str(log.absolute()).replace('%', '%%')}", f"--chdir={Path.cwd()}", *extra]
    try:
        done = subprocess.run(
            words, input=script, capture_output=True, text=True, timeout=LIMIT, check=True
        )
    except FileNotFoundError:
        raise UsageError("there is no sbatch here; --driver background needs none") from None
    except subprocess.CalledProcessError as error:
        raise QtideError(f"sbatch refused the driver of {name}: {error.stderr.strip()}") from None
    except subprocess.TimeoutExpired:
        raise QtideError(f"sbatch gave no answer within {LIMIT:g} s") from None
    return f"job {int(done.stdout.strip().partition(';')[0])}"


@dataclass(frozen=True)
class SlurmOptions:
    """Values as Slurm takes them; None means the site's default."""

    account: Annotated[str | None, Option("The account that pays.")] = None
    qos: Annotated[str | None, Option("The quality of service.")] = None
    constraint: Annotated[str | None, Option("Features that nodes must have.")] = None
    time_limit: Annotated[
        str, Option("How long nodes are held at a time, in the form of sbatch's --time.")
    ] = "60"
    salloc: Annotated[
        list[str], Option("One more option of salloc, as --salloc=--reservation=R.")
    ] = field(default_factory=list)
    qpu_by: Annotated[
        str, Option("What a lease of the QPU is to Slurm: gres, licence, or none.", None, "WHAT")
    ] = "none"
    qpu_partition: Annotated[str, Option("The partition of jobs that hold a lease.")] = "quantum"


class SlurmKind(ClusterKind):
    """A stock Slurm: the site's own, or the one that SLURM_CONF names."""

    summary = "a Slurm cluster, as slurm or slurm:PARTITION"
    Options = SlurmOptions

    def check(self, setting: Setting) -> None:
        """The number of nodes is checked later: only Slurm knows it."""
        admission = setting.options(SlurmOptions).qpu_by
        if admission not in ("none", *ADMISSION):
            raise UsageError(f"--qpu-by is none, {', '.join(ADMISSION)}; not {admission!r}")
        if setting.nodes is not None and setting.nodes < 1:
            raise UsageError(f"--nodes has to be at least 1, not {setting.nodes}")

    async def open(self, world: World, setting: Setting) -> SlurmCluster:
        """Connect; no job is started yet, and those that dead drivers left are cancelled."""
        assert isinstance(world, RealWorld)
        return await SlurmCluster.connect(world, companion_options(setting))

    def queue(self, setting: Setting, nodes: int) -> Queue | None:
        """As Slurm itself expects; raises QtideError if it cannot be asked."""
        return RealWorld().run(present(Slurm(), companion_options(setting), nodes))

    @staticmethod
    def accounts(
        job: JobContext, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
    ) -> dict[str, Any]:
        """What Slurm charges; raises QtideError if it cannot be asked."""
        found = asyncio.run(accounts(job, metrics, scale, since, ended))
        return {name: each.as_dict() for name, each in found.items()}

    @staticmethod
    def ends(jobs: Collection[int], since: float) -> dict[int, float]:
        """As Slurm's records have them; raises QtideError if it cannot be asked."""
        return asyncio.run(when_ended(jobs, since))

    @staticmethod
    def driver_state(job: str) -> str | None:
        """As squeue has it."""
        return driver_state(job)

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """A small batch job."""
        return launch_driver(command, log, name, extra)

    @staticmethod
    def reap() -> list[int]:
        """Companions whose driver on this machine is dead."""
        return asyncio.run(reap(Slurm()))


def companion_options(setting: Setting) -> CompanionOptions:
    """The options of companions."""
    said = setting.options(SlurmOptions)
    return CompanionOptions(
        partition=setting.argument or None,
        account=said.account,
        qos=said.qos,
        constraint=said.constraint,
        time_limit=said.time_limit,
        extra=tuple(said.salloc),
        qpu_by=None if said.qpu_by == "none" else said.qpu_by,
        qpu_partition=said.qpu_partition,
    )
