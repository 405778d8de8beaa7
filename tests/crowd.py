"""A site with strangers on it, in virtual time: others' jobs come and go and hold nodes."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtide.backends.clusters.cluster import Allocation, Cluster
from qtide.backends.clusters.simulated import Delays, SimulatedCluster
from qtide.backends.devices.bursts import Bursts
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.metrics import Metrics, measure
from qtide.core.values import Values
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import Future, World
from qtide.programs.journal import JournalRecord
from qtide.programs.replay import Replay
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, strategy
from tests.bench import INSTANT

STAY = 60.0
"""How long a stranger holds its nodes, on average."""

Program = Callable[[], Coroutine[Any, Any, Any]]


class Forgetful:
    """A journal that keeps nothing: no run here is ever resumed."""

    def find(self, key: str) -> JournalRecord | None:
        return None

    def append(self, record: JournalRecord) -> None:
        pass


@dataclass(frozen=True)
class Crowd:
    """A site: how many nodes there are, which share of them strangers use, how slow it is."""

    nodes: int = 6
    load: float = 0.0
    delays: Delays = field(default_factory=Delays)
    jobs: int = 1

    def metrics(self, name: str, program: Program, seed: int, **options: Any) -> Metrics:
        """Of the jobs, under a strategy, among the strangers of a seed: the same for every one."""
        world = VirtualWorld()
        cluster = SimulatedCluster(world, self.nodes, self.delays)
        site = Site(world, cluster, EmulatedQpu(world, Bursts(), INSTANT, self.jobs))
        jobs = [job_in(world, f"job{number}") for number in range(self.jobs)]

        async def main() -> None:
            others = world.start(strangers(world, cluster, self.load, seed))
            await world.sleep(10 * STAY * (self.load > 0))  # until they are many
            await world.all_of([drive(site, job, name, program(), options) for job in jobs])
            await world.cancel([others])

        world.run(main(), 1e7)
        return measure(span for job in jobs for span in job.ledger.intervals())


def job_in(world: World, name: str) -> JobContext:
    """A job whose ledger is in memory."""
    return JobContext(name, Ledger(name, world.now), Values(Path("/nowhere")))


async def drive(
    site: Site,
    job: JobContext,
    name: str,
    program: Coroutine[Any, Any, Any],
    options: dict[str, Any],
) -> Any:
    """One job under a strategy, on at most three nodes."""
    performer = strategy(name, Assignment(site, job, min(3, site.cluster.size)), options)
    journal: Any = Forgetful()
    with job.ledger.span("run", "driver", name):
        try:
            await performer.open()
            return await Replay(site.world, performer, journal, job).play(program)
        finally:
            await performer.close()


async def strangers(world: World, cluster: Cluster, load: float, seed: int) -> None:
    """Come at random, with one or two nodes, so that on average they use that share of all."""
    chance = random.Random(seed)
    job = job_in(world, "stranger")
    rate = load * cluster.size / (1.5 * STAY)
    here: list[Future[None]] = []
    held: set[Allocation] = set()
    try:
        while rate:
            await world.sleep(chance.expovariate(rate))
            nodes, seconds = chance.choice((1, 2)), chance.expovariate(1 / STAY)
            here = [each for each in here if not each.done()]
            wanted = cluster.request(job, min(nodes, cluster.size))
            here.append(world.start(_stay(world, wanted, seconds, held)))
    finally:
        await world.cancel(here)
        await world.all_of([each.release() for each in held])


async def _stay(
    world: World,
    wanted: Coroutine[Any, Any, Allocation],
    seconds: float,
    held: set[Allocation],
) -> None:
    allocation = await wanted
    held.add(allocation)
    try:
        await world.sleep(seconds)
    finally:
        await allocation.release()
    held.discard(allocation)
