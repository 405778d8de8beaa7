"""From the options of a run to the world, the cluster and the QPU they name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from qtide.clusters.cluster import Cluster
from qtide.devices.annealer import Annealer
from qtide.devices.profile import profile
from qtide.errors import UsageError
from qtide.leases.emulated import EmulatedQpu
from qtide.leases.qpu import Qpu
from qtide.runs.spec import Spec
from qtide.world.real import RealWorld
from qtide.world.virtual import VirtualWorld
from qtide.world.world import World

if TYPE_CHECKING:
    from qtide.slurm.options import Options

KINDS = ("local", "simulated", "slurm")
DEFAULT_NODES = 3
ADMISSIONS = ("none", "gres", "licence")


@runtime_checkable
class Admitting(Protocol):
    """A cluster that may give the leases of a QPU as well as nodes."""

    def admit(self, qpu: Qpu) -> None:
        """Be asked for the leases of a QPU from now on."""


@dataclass(frozen=True)
class Ground:
    """A world with a cluster and a QPU, for one or several jobs."""

    world: World
    cluster: Cluster
    qpu: Qpu

    def __post_init__(self) -> None:
        """Let the cluster know of the QPU beside it."""
        if isinstance(self.cluster, Admitting):
            self.cluster.admit(self.qpu)


def check_site(spec: Spec) -> None:
    """Refuse what cannot be put up, with a sentence."""
    kind, size = _cluster_kind(spec)
    _check_admission(spec, kind)
    if kind == "slurm":
        _check_slurm(spec)
    elif spec.nodes is not None and not 1 <= spec.nodes <= size:
        raise UsageError(
            f"--nodes {spec.nodes} does not fit: the cluster has {size}; give 1 to {size}, or "
            f"a larger cluster as in --cluster {kind}:{max(spec.nodes, 1)}"
        )
    if not spec.time_scale > 0:
        raise UsageError(f"--time-scale has to be above 0, not {spec.time_scale:g}")
    if spec.vqpus < 1:
        raise UsageError(f"--vqpus has to be at least 1, not {spec.vqpus}")
    if (spec.options.get("cores") or 1) < 1:
        raise UsageError(f"--cores has to be at least 1, not {spec.options.get('cores')}")
    _check_qpu(spec, kind)


def world_for(spec: Spec) -> World:
    """Real time on a real cluster, virtual time on a simulated one."""
    kind, _ = _cluster_kind(spec)
    return VirtualWorld() if kind == "simulated" else RealWorld(spec.time_scale)


@asynccontextmanager
async def ground(spec: Spec, world: World, log: Path | None = None) -> AsyncIterator[Ground]:
    """Put up the cluster and the QPU; leave nothing behind."""
    here = Ground(world, await _cluster(spec, world, log), qpu_for(spec, world))
    try:
        yield here
    finally:
        await here.cluster.close()


def qpu_for(spec: Spec, world: World) -> Qpu:
    """The QPU that the options name."""
    if _is_url(spec.qpu) and isinstance(world, RealWorld):
        from qtide.leases.remote import RemoteQpu

        return RemoteQpu.at(world, spec.qpu, spec.vqpus)
    return EmulatedQpu(world, Annealer(), profile(spec.qpu), spec.vqpus)


def _cluster_kind(spec: Spec) -> tuple[str, int]:
    """The kind of cluster and its size, from a name like `local` or `local:4`.

    Slurm knows its own size; after its colon stands a partition.
    """
    kind, _, size = spec.cluster.partition(":")
    if kind not in KINDS:
        raise UsageError(f"there is no cluster {kind!r}; there are: {', '.join(KINDS)}")
    if kind == "slurm":
        return kind, 0
    if size and not (size.isdecimal() and int(size) > 0):
        raise UsageError(f"a cluster's size is a number of nodes, as in {kind}:4, not {size!r}")
    return kind, int(size) if size else DEFAULT_NODES


def _check_admission(spec: Spec, kind: str) -> None:
    if spec.options.get("qpu_by", "none") not in ADMISSIONS:
        raise UsageError(
            f"--qpu-by is {', '.join(ADMISSIONS)}; not {spec.options.get('qpu_by', 'none')!r}"
        )
    if spec.options.get("qpu_by", "none") != "none" and kind != "slurm":
        raise UsageError(
            f"--qpu-by {spec.options.get('qpu_by', 'none')} is for --cluster slurm, not for {kind}"
        )


def _check_qpu(spec: Spec, kind: str) -> None:
    if not _is_url(spec.qpu):
        profile(spec.qpu)
    elif kind == "simulated":
        raise UsageError("a service runs in real time: --qpu URL needs --cluster local or slurm")


def _is_url(qpu: str) -> bool:
    """Whether the QPU is a device of the vQPU service."""
    return qpu.startswith(("http://", "https://"))


def _check_slurm(spec: Spec) -> None:
    """How many nodes there are is known once Slurm was asked."""
    if spec.nodes is not None and spec.nodes < 1:
        raise UsageError(f"--nodes has to be at least 1, not {spec.nodes}")


async def _cluster(spec: Spec, world: World, log: Path | None) -> Cluster:
    kind, size = _cluster_kind(spec)
    if isinstance(world, RealWorld) and kind == "slurm":
        from qtide.slurm.cluster import SlurmCluster

        return await SlurmCluster.connect(world, _slurm_options(spec), log=log)
    if isinstance(world, RealWorld):
        from qtide.clusters.local import Limits, LocalCluster

        return LocalCluster(
            world, size, Limits(spec.options.get("memory"), spec.options.get("cores")), log
        )
    from qtide.clusters.simulated import SimulatedCluster

    return SimulatedCluster(world, size)


def _slurm_options(spec: Spec) -> Options:
    from qtide.slurm.options import Options

    return Options(
        partition=spec.cluster.partition(":")[2] or None,
        account=spec.options.get("account"),
        qos=spec.options.get("qos"),
        constraint=spec.options.get("constraint"),
        time_limit=spec.options.get("time_limit", "60"),
        extra=tuple(spec.options.get("salloc", ())),
        qpu_by=None
        if spec.options.get("qpu_by", "none") == "none"
        else spec.options.get("qpu_by", "none"),
        qpu_partition=spec.options.get("qpu_partition", "quantum"),
    )
