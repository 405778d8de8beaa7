"""The kind of cluster that is a Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from qtide.clusters.kind import ClusterKind
from qtide.options import Option
from qtide.slurm import kind_hooks


@dataclass(frozen=True)
class SlurmOptions:
    """Words as Slurm has them."""

    account: Annotated[str | None, Option("The account that pays.")] = None
    qos: Annotated[str | None, Option("The quality of service.")] = None
    constraint: Annotated[str | None, Option("Features that nodes need to have.")] = None
    time_limit: Annotated[
        str, Option("How long nodes are held at a time, as sbatch's --time has it.")
    ] = "60"
    salloc: Annotated[
        tuple[str, ...], Option("One more option of salloc, as --salloc=--reservation=R.")
    ] = ()
    qpu_by: Annotated[
        str, Option("What a lease of the QPU is to Slurm: gres, licence, or none of its business.")
    ] = "none"
    qpu_partition: Annotated[str, Option("The partition of jobs that hold a QPU.")] = "quantum"


class SlurmKind(ClusterKind):
    """Companion jobs on a stock Slurm."""

    summary = "companion jobs on Slurm, slurm:compute for a partition"
    Options = SlurmOptions
    accounts = staticmethod(kind_hooks.accounts)
    driver_state = staticmethod(kind_hooks.driver_state)
    launch_driver = staticmethod(kind_hooks.launch_driver)
    reap = staticmethod(kind_hooks.reap)
