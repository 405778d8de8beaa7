"""A workbench for tests: a virtual world with a cluster, a QPU, and jobs on it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from qtide.backends.clusters.simulated import Delays, Loss, SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.profile import Profile
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.job import JobContext
from qtide.core.ledger import Interval, Ledger
from qtide.core.values import Values
from qtide.core.world.virtual import VirtualWorld
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment

INSTANT = Profile("instant", 0.0, 0.0, 1)


class Bench:
    """Everything a strategy needs, in virtual time."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        slots: int = 1,
        delays: Delays = Delays(),  # noqa: B008 - frozen
        losses: Sequence[Loss] = (),
        fails: Callable[[int], bool] = lambda _: False,
        seed: int | None = None,
        profile: Profile = INSTANT,
        unusable: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.folder = folder
        self.world = VirtualWorld(seed)
        self.cluster = SimulatedCluster(self.world, nodes, delays, losses, unusable=unusable)
        self.qpu = EmulatedQpu(self.world, Annealer(), profile, slots, fails)
        self.jobs: list[JobContext] = []

    def job(self, name: str = "job") -> JobContext:
        job = JobContext(name, Ledger(name, self.world.now), Values(self.folder / name))
        self.jobs.append(job)
        return job

    def assignment(self, name: str = "job", nodes: int = 2) -> Assignment:
        return Assignment(Site(self.world, self.cluster, self.qpu), self.job(name), nodes)

    def run(self, main: Coroutine[Any, Any, Any], until: float = 1e6) -> Any:
        return self.world.run(main, until)

    def intervals(self) -> list[Interval]:
        return [span for job in self.jobs for span in job.ledger.intervals()]
