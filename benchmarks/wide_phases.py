"""Wide phases: the rate of small tasks must not fall with how many of them wait.

One phase of so many tasks on two local nodes; the bound is the rate of the narrowest, in the same
run. Memory is that of the driver.
"""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path

from claims import at_least, at_most, conclude

from qtide import classical, task
from qtide.backends.clusters.local import LocalCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.strategies.node_pool import NodePool

WIDTHS = (1_000, 10_000, 100_000)
NODES = 2


async def rates(folder: Path) -> dict[int, tuple[float, float]]:
    """Tasks per second, and megabytes at the end, for each width."""
    world = RealWorld()
    cluster = LocalCluster(world, NODES)
    job = JobContext(
        "wide", Ledger("wide", world.now, folder / "ledger"), Values(folder / "values")
    )
    pool = NodePool(world, cluster, job, NODES)
    pool.join(await cluster.request(job, NODES))
    await pool.run(classical(task(abs, -1)), "0")
    found = {}
    for width in WIDTHS:
        phase = classical(*(task(abs, -n) for n in range(width)))
        began = time.perf_counter()
        results = await pool.run(phase, str(width))
        found[width] = (width / (time.perf_counter() - began), _megabytes())
        assert results == list(range(width))
    await pool.release_all()
    await cluster.close()
    return found


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure and conclude."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(rates(Path(folder)))
    print(f"{'tasks in a phase':>18}{'tasks per second':>18}{'driver, MB':>12}")
    for width, (rate, memory) in found.items():
        print(f"{width:>18,}{rate:>18,.0f}{memory:>12,.0f}")
    narrow, wide = found[WIDTHS[0]], found[WIDTHS[-1]]
    added = 1024 * (wide[1] - narrow[1]) / (WIDTHS[-1] - WIDTHS[0])
    conclude(
        "wide_phases",
        [
            at_least("rate of 100,000 tasks, of the rate of 1,000", wide[0] / narrow[0], 0.8),
            at_most("memory per waiting task, kB", added, 10),
        ],
    )


if __name__ == "__main__":
    main()
