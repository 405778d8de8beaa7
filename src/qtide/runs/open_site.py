"""The world, the cluster and the QPU that the options of a run name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.clusters.simulated import (
    Simulated,
    SimulatedCluster,
    is_site,
    site_model,
)
from qtide.backends.clusters.virtual_tasks import Recorded
from qtide.backends.devices.device import choice
from qtide.backends.devices.runner import Runner
from qtide.backends.leases.emulated import EmulatedQpu, ModelledQpu
from qtide.backends.leases.qpu import Qpu
from qtide.backends.models.site_model import SiteModel
from qtide.core.errors import UsageError
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World
from qtide.runs.spec import Spec
from qtide.strategies.site import Site

if TYPE_CHECKING:
    from qtide.runs.served import SharedQpus


def check_site(spec: Spec) -> None:
    """Refuse options that cannot be satisfied."""
    kind, _ = cluster_kind(spec.cluster)
    kind.check(spec.setting())
    if not 0 < spec.time_scale < inf:
        raise UsageError(f"--time-scale has to be a number above 0, not {spec.time_scale:g}")
    if spec.seed < 0:
        raise UsageError(f"--seed has to be at least 0, not {spec.seed}")
    if spec.vqpus < 1:
        raise UsageError(f"--vqpus has to be at least 1, not {spec.vqpus}")
    if spec.session and spec.options.get("engine"):
        raise UsageError("no workflow engine runs a session: leave engine out, or use a program")
    _check_qpu(spec, world_for(spec))


def world_for(spec: Spec) -> World:
    """Real time on a real cluster, virtual time on a simulated one."""
    kind, _ = cluster_kind(spec.cluster)
    return kind.world(spec.time_scale)


def is_virtual(spec: Spec) -> bool:
    """Whether nothing is waited for, so that no time depends on what is loaded."""
    return not isinstance(world_for(spec), RealWorld)


@asynccontextmanager
async def opened(
    spec: Spec, world: World, device_log: Path | None = None, durations: Recorded | None = None
) -> AsyncIterator[Site]:
    """Start the cluster and the QPU, and stop them at the end.

    What a device prints in its own process goes to the log. The durations are for a simulated
    cluster: how long tasks take that pretend nothing.
    """
    kind, _ = cluster_kind(spec.cluster)
    shared = _served(spec, world)
    qpu = qpu_for(spec, world, device_log) if shared is None else shared.qpus[0]
    cluster = await kind.open(world, spec.setting())
    if durations is not None and isinstance(cluster, SimulatedCluster):
        cluster.seconds = durations.seconds
    try:
        if shared is not None:
            await shared.open()
        qpu.start()
        site = Site(world, cluster, qpu)
        qpu.check_admission()
        yield site
    finally:
        try:
            await (qpu if shared is None else shared).close()
        finally:
            await cluster.close()


def qpu_for(spec: Spec, world: World, device_log: Path | None = None) -> Qpu:
    """The QPU that the options name."""
    if is_service(spec.qpu) and isinstance(world, RealWorld):
        from qtide.backends.leases.remote import RemoteQpu

        return RemoteQpu.at(world, spec.qpu, spec.vqpus)
    chosen = choice(spec.qpu)
    runner = None
    if isinstance(world, RealWorld) and not chosen.device.light:
        runner = Runner(chosen, device_log)
    model = _model(spec)
    if model is not None:
        return ModelledQpu(world, chosen.device, chosen.profile, leases(spec), model.qpu)
    return EmulatedQpu(world, chosen.device, chosen.profile, spec.vqpus, runner=runner)


def leases(spec: Spec) -> int:
    """How many jobs may use the QPU at a time: a site that counts licences has no more of them."""
    model = _model(spec)
    return (model.qpu.licences if model else None) or spec.vqpus


def _served(spec: Spec, world: World) -> SharedQpus | None:
    """The vQPU service of a simulated site, if its file has one."""
    model = _model(spec)
    if model is None or model.service is None:
        return None
    from qtide.runs.served import SharedQpus, Solver

    chosen = choice(spec.qpu)
    solver = Solver(chosen.device, chosen.profile)
    return SharedQpus(world, model.qpu, model.service, leases(spec), solver)


def _model(spec: Spec) -> SiteModel | None:
    """The site that a file describes, if there is a file."""
    kind, argument = cluster_kind(spec.cluster)
    if isinstance(kind, Simulated) and is_site(argument):
        return site_model(spec.setting())
    return None


def _check_qpu(spec: Spec, world: World) -> None:
    if not is_service(spec.qpu):
        choice(spec.qpu)
    elif not isinstance(world, RealWorld):
        raise UsageError("a service runs in real time: --qpu URL needs --cluster local or slurm")


def is_service(qpu: str) -> bool:
    """Whether a QPU is a device of the vQPU service."""
    return qpu.startswith(("http://", "https://"))
