"""What the tests on a box share: a real world, jobs with ledgers, and Slurm's own commands."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from qtide.backends.clusters.cluster import Node
from qtide.backends.clusters.slurm.commands import environment
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.log import Log
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from tests.backends.works import call

T = TypeVar("T")
LIMIT = 60.0
"""Seconds after which a test has hung; no test comes near."""


class Stage:
    """One test's view of a box."""

    def __init__(self, conf: Path, folder: Path) -> None:
        self.conf = conf
        self.folder = folder
        self.world = RealWorld()
        self.log = folder / "agents.log"

    def play(
        self,
        scene: Callable[[SlurmCluster], Awaitable[T]],
        options: CompanionOptions | None = None,
        limit: float = LIMIT,
    ) -> T:
        """Run a scene with a cluster that is closed afterwards."""

        async def whole() -> T:
            cluster = await self.connect(options)
            try:
                return await scene(cluster)
            finally:
                await cluster.close()

        return self.world.run(self.world.timeout(limit, whole()))

    async def connect(self, options: CompanionOptions | None = None) -> SlurmCluster:
        return await SlurmCluster.connect(self.world, options or CompanionOptions(), conf=self.conf)

    def job(self, name: str = "job") -> JobContext:
        values = Values(self.folder / name / "values")
        return JobContext(name, Ledger(name, self.world.now), values, log=Log(self.log))

    def slurm(self, *words: str) -> str:
        """The output of a Slurm command."""
        done = subprocess.run(
            words,
            env=environment(self.conf),
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        return done.stdout

    def running(self) -> list[int]:
        """The jobs that Slurm is running."""
        return [int(n) for n in self.slurm("squeue", "-h", "-t", "R", "-o", "%i").split()]

    async def pending(self) -> None:
        """Wait until a job is in Slurm's queue; the limit is that of `play`."""
        while not self.slurm("squeue", "-h", "-t", "PD", "-o", "%i"):
            await self.world.sleep(0.05)

    def idle(self, partition: str = "compute") -> int:
        """How many nodes are idle, with nothing left to clean up, according to Slurm."""
        lines = self.slurm("sinfo", "-h", "-N", "-p", partition, "-o", "%T").split()
        return sum(
            each in ("idle", "planned") for each in lines
        )  # planned: idle, but reserved for a pending job


async def run(node: Node, job: JobContext, function: Callable[..., Any], *args: Any) -> Any:
    """What a function returns on a node."""
    return await node.run(call(job, function, *args))


def until(true: Callable[[], bool], limit: float = 120.0) -> bool:
    """Whether something becomes true in time."""
    last = time.monotonic() + limit
    while not true():
        if time.monotonic() > last:
            return False
        time.sleep(0.05)
    return True
