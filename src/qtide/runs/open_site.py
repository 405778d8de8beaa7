"""Opens the world, cluster and QPU named in a run's options."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtide.backends.clusters.kind import cluster_kind
from qtide.backends.leases.qpu import Qpu
from qtide.core.errors import UsageError
from qtide.core.world.real import RealWorld
from qtide.core.world.world import World
from qtide.runs.spec import Spec
from qtide.strategies.site import Site

if TYPE_CHECKING:
    from qtide.backends.clusters.virtual_tasks import Recorded
    from qtide.backends.devices.device import Device
    from qtide.backends.models.site_model import SiteModel
    from qtide.runs.served import SharedQpus


DEFAULT_FOR_CIRCUITS = f"gate:{Spec.qpu},qubits=20"
"""The device if the user has named none and the first payload has circuits."""


def check_site(spec: Spec) -> None:
    """Refuse options that cannot be satisfied."""
    kind, _ = cluster_kind(spec.cluster)
    kind.check(spec.setting())
    if not 0 < spec.time_scale < inf:
        raise UsageError(f"--time-scale has to be a number above 0, not {spec.time_scale:g}")
    if spec.seed < 0:
        raise UsageError(f"--seed has to be at least 0, not {spec.seed}")
    spec.default_needs()  # refuses what is not said right
    if spec.vqpus < 1:
        raise UsageError(f"--vqpus has to be at least 1, not {spec.vqpus}")
    if spec.session and spec.options.get("engine"):
        raise UsageError("no workflow engine runs a session: leave engine out, or use a program")
    if is_service(spec.qpu):
        if kind.world(spec.time_scale).is_virtual:
            raise UsageError(
                "a service runs in real time: --qpu URL needs --cluster local or slurm"
            )
    elif spec.qpu != Spec.qpu:
        from qtide.backends.devices.device import choice  # a classical program needs no device

        choice(spec.qpu)


def world_for(spec: Spec) -> World:
    """Real time on a real cluster, virtual time on a simulated one."""
    kind, _ = cluster_kind(spec.cluster)
    return kind.world(spec.time_scale)


def is_virtual(spec: Spec) -> bool:
    """Whether a run uses virtual time."""
    return world_for(spec).is_virtual


@asynccontextmanager
async def opened(
    spec: Spec, world: World, device_log: Path | None = None, durations: Recorded | None = None
) -> AsyncIterator[Site]:
    """Start the cluster; at the end, stop it and the QPU.

    A QPU named by the user starts at once: it may refuse the job, and its worker starts while the
    first tasks run. The default QPU is built by the first phase that needs it. Output of a device's
    own process goes to `device_log`. In virtual time, `durations` gives the duration of tasks that
    have no simulated one.
    """
    kind, _ = cluster_kind(spec.cluster)
    async with AsyncExitStack() as parts:
        cluster = await kind.open(world, spec.setting())
        parts.push_async_callback(cluster.close)
        if durations is not None:
            from qtide.backends.clusters.simulated import SimulatedCluster  # loads the models

            for each in cluster.kinds.values():
                if isinstance(each, SimulatedCluster):
                    each.seconds = durations.seconds
        shared = _served(spec, world)
        if shared is not None:
            parts.push_async_callback(shared.close)
            await shared.open()

        def build() -> Qpu:
            if shared is not None:
                return shared.qpus[0]
            qpu = qpu_for(spec, world, device_log)
            parts.push_async_callback(qpu.close)
            qpu.start()
            return qpu

        site = Site(world, cluster, build)
        if shared is not None or spec.qpu != Spec.qpu:
            site.qpu.check_admission()
        yield site


def qpu_for(spec: Spec, world: World, device_log: Path | None = None) -> Qpu:
    """Create the QPU named in the options."""
    if is_service(spec.qpu) and not world.is_virtual:
        from qtide.backends.leases.remote import RemoteQpu  # loads an HTTP client

        assert isinstance(world, RealWorld)
        return RemoteQpu.at(world, spec.qpu, spec.vqpus)
    # a classical program needs no device
    from qtide.backends.devices.device import choice
    from qtide.backends.devices.runner import Runner
    from qtide.backends.leases.emulated import EmulatedQpu, ModelledQpu
    from qtide.backends.payloads.payload import format_of, is_circuits

    chosen = choice(spec.qpu)
    model = _model(spec)
    if model is not None:
        return ModelledQpu(world, chosen.device, chosen.profile, leases(spec), model.qpu)
    heavy = not (world.is_virtual or chosen.device.light)
    runner = Runner(chosen, device_log) if heavy else None
    device, profile = chosen.device, chosen.profile
    if spec.qpu != Spec.qpu:
        return EmulatedQpu(world, device, profile, spec.vqpus, runner=runner)

    def suit(payload: Any) -> tuple[Device, Runner | None] | None:
        name = format_of(payload)
        if name is None or not is_circuits(name):
            return None
        better = choice(DEFAULT_FOR_CIRCUITS)
        sys.stderr.write(
            f"the first payload has circuits, so the QPU is {DEFAULT_FOR_CIRCUITS}; --qpu names "
            "another\n"
        )
        return better.device, None if world.is_virtual else Runner(better, device_log)

    return EmulatedQpu(world, device, profile, spec.vqpus, runner=runner, suit=suit)


def leases(spec: Spec) -> int:
    """Number of jobs that may use the QPU at once: the site's licences if counted, else vQPUs."""
    model = _model(spec)
    return (model.qpu.licences if model else None) or spec.vqpus


def _served(spec: Spec, world: World) -> SharedQpus | None:
    """The vQPU service of a simulated site, if its file describes one."""
    model = _model(spec)
    if model is None or model.service is None:
        return None
    from qtide.backends.devices.device import choice
    from qtide.runs.served import SharedQpus, Solver  # loads the service

    chosen = choice(spec.qpu)
    solver = Solver(chosen.device, chosen.profile)
    return SharedQpus(world, model.qpu, model.service, leases(spec), solver)


def _model(spec: Spec) -> SiteModel | None:
    """The site model from a file, if one is named."""
    kind, argument = cluster_kind(spec.cluster)
    return kind.described_site(spec.setting()) if argument else None


def is_service(qpu: str) -> bool:
    """Whether a QPU is a device of the vQPU service."""
    return qpu.startswith(("http://", "https://"))
