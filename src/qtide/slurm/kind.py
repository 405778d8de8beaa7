"""`--cluster slurm`: what its user may choose, and how a stock Slurm becomes a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from qtide.clusters.kind import ClusterKind, Queue, Setting
from qtide.errors import UsageError
from qtide.jobs.job import Job
from qtide.ledger.metrics import Metrics
from qtide.options import Option
from qtide.slurm import account, drivers, reaper
from qtide.slurm.cluster import SlurmCluster
from qtide.slurm.commands import Slurm
from qtide.slurm.options import ADMISSION, Options
from qtide.slurm.present import present
from qtide.world.real import RealWorld
from qtide.world.world import World


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
        job: Job, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
    ) -> dict[str, Any]:
        """What Slurm charges; raises QtideError if it cannot be asked."""
        found = asyncio.run(account.accounts(job, metrics, scale, since, ended))
        return {name: each.as_dict() for name, each in found.items()}

    @staticmethod
    def ends(jobs: Collection[int], since: float) -> dict[int, float]:
        """As Slurm's records have them; raises QtideError if it cannot be asked."""
        return asyncio.run(account.ends(jobs, since))

    @staticmethod
    def driver_state(job: str) -> str | None:
        """As squeue has it."""
        return drivers.driver_state(job)

    @staticmethod
    def launch_driver(command: list[str], log: Path, name: str, extra: list[str]) -> str:
        """A small batch job."""
        return drivers.launch_driver(command, log, name, extra)

    @staticmethod
    def reap() -> list[int]:
        """Companions whose driver on this machine is dead."""
        return asyncio.run(reaper.reap(Slurm()))


def companion_options(setting: Setting) -> Options:
    """The options of companions."""
    said = setting.options(SlurmOptions)
    return Options(
        partition=setting.argument or None,
        account=said.account,
        qos=said.qos,
        constraint=said.constraint,
        time_limit=said.time_limit,
        extra=tuple(said.salloc),
        qpu_by=None if said.qpu_by == "none" else said.qpu_by,
        qpu_partition=said.qpu_partition,
    )
