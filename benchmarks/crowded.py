"""elastic among strangers: what it costs by its own weighing, beside every other strategy.

Virtual time, the strategies' own code. A cell is a site and a workload: strangers' load, how long a
grant and a cold start take, quantum and classical times, jobs at once, what the user favours (the
time weight), and the shape of the program.
Cost: favour x jobs x mean wall + (1 - favour) x node-seconds; every strategy meets the same
strangers, seed by seed. Jobs see their own waits, not those of strangers.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from claims import at_most, conclude

from qtide import classical, pretend, quantum, task
from qtide.backends.clusters.simulated import Delays, SimulatedCluster
from qtide.backends.devices.bursts import Bursts
from qtide.backends.devices.profile import Profile
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.backends.payloads.payload import Burst
from qtide.core.forecasts import Known
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.metrics import measure
from qtide.core.values import Values
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import Future
from qtide.programs.journal import JournalRecord
from qtide.programs.phase import Classical
from qtide.programs.replay import Replay
from qtide.strategies.site import Site
from qtide.strategies.strategy import Assignment, strategy

OTHERS = ("static", "malleable", "workflow", "split")
NODES, ROUNDS = 3, 5
PROFILE = Profile("burst", 0.0, 0.0, 1)
STRANGER_SECONDS = 60.0
"""How long a stranger's job holds its nodes, on average."""


@dataclass(frozen=True)
class Cell:
    """One site with one workload."""

    load: float
    grant: float
    start: float
    quantum: float
    classical: float
    jobs: int
    favour: float
    shape: str = "pair"

    @property
    def size(self) -> int:
        """Nodes of the cluster."""
        return 12 if self.jobs >= 16 else 6


GRID: dict[str, Sequence[Any]] = {
    "load": (0.0, 0.6, 0.9, 0.95),
    "grant": (0.0, 2.0, 30.0),
    "start": (0.0, 1.0, 5.0),
    "quantum": (0.0, 5.0, 60.0, 300.0),
    "classical": (0.05, 2.0, 20.0, 80.0),
    "jobs": (1, 2, 8, 64),
    "favour": (0.25, 0.5, 0.75),
}


class Forgetful:
    """A journal that keeps nothing: no run here is ever resumed."""

    def find(self, key: str) -> JournalRecord | None:
        """Nothing is ever found."""
        return None

    def append(self, record: JournalRecord) -> None:
        """Forget it at once."""


def sample(cells: int, seed: int = 1) -> list[Cell]:
    """So many cells, spread over the whole grid: every value comes up about as often."""
    chance = random.Random(seed)
    columns = []
    for values in GRID.values():
        column = list(itertools.islice(itertools.cycle(values), cells))
        chance.shuffle(column)
        columns.append(column)
    return [Cell(*row) for row in zip(*columns, strict=True)]


def shaped(cells: int) -> list[Cell]:
    """Cells of the other shapes, one job each; every shape meets every value as often."""
    found = sample(cells, seed=2)
    names = itertools.cycle(name for name in SHAPES if name != "pair")
    return [replace(cell, jobs=1, shape=name) for cell, name in zip(found, names, strict=False)]


def wide(number: int, seconds: float) -> Classical:
    """So many tasks at once."""
    return classical(*(task(pretend, seconds) for _ in range(number)))


def merge() -> None:
    """A narrow step between wide ones."""
    pretend(0.05)


async def pair(cell: Cell) -> None:
    """Rounds of two unequal tasks, a payload, and a third task."""
    for _ in range(ROUNDS):
        await classical(task(pretend, cell.classical), task(pretend, cell.classical / 8))
        await quantum(Burst(cell.quantum))
        await task(pretend, cell.classical / 2)


async def widths(cell: Cell) -> None:
    """Phases of changing width, then a payload."""
    for _ in range(2 * ROUNDS):
        for number in (1, 8, 2, 16):
            await wide(number, cell.classical / 4)
        await quantum(Burst(cell.quantum))


async def merges(cell: Cell) -> None:
    """Merges between wide phases, then a payload."""
    for _ in range(2 * ROUNDS):
        await wide(8, cell.classical / 4)
        await task(merge)
        await wide(8, cell.classical / 4)
        await task(merge)
        await quantum(Burst(cell.quantum))


async def narrow(cell: Cell) -> None:
    """A wide phase, a merge, a payload."""
    for _ in range(2 * ROUNDS):
        await wide(6, cell.classical / 2)
        await task(merge)
        await quantum(Burst(cell.quantum))


async def two_after(cell: Cell) -> None:
    """Two phases after a payload."""
    for _ in range(2 * ROUNDS):
        await quantum(Burst(cell.quantum))
        await wide(4, cell.classical / 2)
        await wide(3, cell.classical / 4)


def solve(seconds: float, rank: int = 0, size: int = 1) -> None:
    """One rank of a task on several nodes."""
    pretend(seconds)


async def ranks(cell: Cell) -> None:
    """A task on two nodes beside one on a node of its own, a merge, a payload."""
    for _ in range(2 * ROUNDS):
        wide = task(solve, cell.classical / 2).on(2)
        await classical(wide, task(pretend, cell.classical / 4))
        await task(merge)
        await quantum(Burst(cell.quantum))


SHAPES = {each.__name__: each for each in (pair, widths, merges, narrow, two_after, ranks)}


async def strangers(world: VirtualWorld, cluster: SimulatedCluster, cell: Cell, seed: int) -> None:
    """Others' jobs come at random and hold nodes, so that their load is as the cell says."""
    chance = random.Random(seed)
    job = JobContext("stranger", Ledger("stranger", world.now), Values(Path()))
    rate = cell.load * cell.size / (1.5 * STRANGER_SECONDS)
    here: set[Future[None]] = set()
    try:
        while rate:
            await world.sleep(chance.expovariate(rate))
            nodes, seconds = chance.choice((1, 2)), chance.expovariate(1 / STRANGER_SECONDS)
            here.add(one := world.start(cluster.occupy(job, nodes, seconds)))
            one.add_done_callback(here.discard)
    finally:
        await world.cancel(list(here))


async def drive(
    site: Site, job: JobContext, name: str, cell: Cell, known: Known | None = None
) -> Known:
    """One job under a strategy, which begins with what is known; what it knows in the end."""
    performer = strategy(name, Assignment(site, job, NODES), {"time_weight": cell.favour})
    if known is not None:
        performer.forecast.recall(known)
    with job.ledger.span("run", "driver", name):
        try:
            await performer.open()
            journal: Any = Forgetful()
            await Replay(site.world, performer, journal, job).play(SHAPES[cell.shape](cell))
        finally:
            await performer.close()
    return performer.forecast.as_json()


def cost(cell: Cell, name: str, seed: int) -> float:
    """What a strategy costs in a cell, by the cell's own weighing.

    Of the other shapes, it is the second run that counts: as every run, it begins with what the one
    before has learnt of the program, not of the site.
    """
    known = None
    if cell.shape != "pair":
        _, known = played(cell, name, seed + 1000)
    return played(cell, name, seed, known)[0]


def played(cell: Cell, name: str, seed: int, known: Known | None = None) -> tuple[float, Known]:
    """The cost of one run of all jobs, and what the last of them has learnt."""
    world = VirtualWorld()
    cluster = SimulatedCluster(world, cell.size, Delays(cell.grant, cell.start))
    qpu = EmulatedQpu(world, Bursts(), PROFILE, cell.jobs)
    site = Site(world, cluster, qpu)
    folder = Path(tempfile.gettempdir())
    jobs = [
        JobContext(f"job{n}", Ledger(f"job{n}", world.now), Values(folder))
        for n in range(cell.jobs)
    ]

    async def main() -> Known:
        others = world.start(strangers(world, cluster, cell, seed))
        await world.sleep(10 * STRANGER_SECONDS * (cell.load > 0))  # until they are many
        learnt = await world.all_of([drive(site, job, name, cell, known) for job in jobs])
        await world.cancel([others])
        return learnt[-1]

    learnt = world.run(main())
    metrics = measure(span for job in jobs for span in job.ledger.intervals())
    walls = cell.jobs * metrics.mean_wall
    return cell.favour * walls + (1 - cell.favour) * metrics.nodes_held, learnt


@dataclass(frozen=True)
class Result:
    """A cell's costs, and elastic's against the best other."""

    cell: Cell
    costs: dict[str, float]
    best: str
    ratio: float
    error: float
    """The standard error of the ratio, of paired seeds."""

    @property
    def loses(self) -> bool:
        """More than 2 % above the best other, and not by chance."""
        return self.ratio > 1.02 and self.ratio - 2 * self.error > 1.0


def examine(cell: Cell, seeds: int) -> Result:
    """All strategies in one cell."""
    numbers = range(seeds if cell.load else 1)
    costs = {name: [cost(cell, name, seed) for seed in numbers] for name in (*OTHERS, "elastic")}
    means = {name: statistics.fmean(values) for name, values in costs.items()}
    best = min(OTHERS, key=means.__getitem__)
    differences = [a - b for a, b in zip(costs["elastic"], costs[best], strict=True)]
    spread = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0
    return Result(cell, means, best, means["elastic"] / means[best], spread / means[best])


def rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """For people."""
    for each in results:
        cell = each.cell
        yield [
            *(cell.shape, f"{cell.load:.0%}"),
            *(f"{value:g}" for value in (cell.grant, cell.start, cell.quantum, cell.classical)),
            *(f"{cell.jobs}", f"{cell.favour:g}", each.best),
            *(f"{each.costs[each.best]:,.0f}", f"{each.costs['elastic']:,.0f}"),
            f"{each.ratio:.3f}" + (" !" if each.loses else ""),
        ]


HEAD = (
    *("shape", "load", "grant", "start", "quantum", "classical", "jobs", "favour", "best other"),
    *("its cost", "elastic", "ratio"),
)


def show(lines: Iterator[list[str]]) -> None:
    """A table."""
    for line in (HEAD, *lines):
        print("  ".join(f"{word:>10}" for word in line))


def main() -> None:
    """Measure, print the cells, the worst ten, and the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=72)
    parser.add_argument("--shaped", type=int, default=48, help="cells of the other shapes")
    parser.add_argument("--seeds", type=int, default=20)
    chosen = parser.parse_args()
    began = time.monotonic()
    cells = sample(chosen.cells) + shaped(chosen.shaped)
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(partial(examine, seeds=chosen.seeds), cells))
    results.sort(key=lambda each: -each.ratio)
    show(rows(results))
    print("\nthe worst ten:")
    show(rows(results[:10]))
    print(f"\n{len(results)} cells, {chosen.seeds} seeds each, {time.monotonic() - began:.0f} s")
    losing = sum(each.loses for each in results)
    median = statistics.median(each.ratio for each in results)
    conclude(
        "crowded",
        [
            at_most("cells in which elastic costs more than 1.02 x the best other", losing, 0),
            at_most("elastic's cost in the median cell, x the best other's", median, 0.9),
        ],
    )


if __name__ == "__main__":
    main()
