"""Expand, shrink and step to step on Slurm 22.05, 24.11 and 26.05, side by side.

Each release runs as a box from Debian's packages, which are fetched the first time; 26.05 has no
munge. Run it on a quiet machine: python benchmarks/releases.py
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from boxes import put_up
from claims import at_most, conclude
from slurm_reconfigure import EXPAND_GOAL, SHRINK_GOAL, reconfigure

from qtide import task
from qtide.backends.clusters.cluster import Work
from qtide.backends.clusters.slurm.slurm_cluster import SlurmAllocation, SlurmCluster
from qtide.box import RELEASES
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld

STEPS = 10
SLOWER = 1.5
"""How much longer the newest release may take than the oldest."""


async def step_to_step(world: RealWorld, conf: Path, folder: Path) -> list[float]:
    """Seconds from the end of a step on a node until the next step there has done a task."""
    cluster = await SlurmCluster.connect(world, conf=conf)
    job = JobContext("steps", Ledger("steps", world.now), Values(folder / "values"))
    found = []
    try:
        allocation = await cluster.request(job, 1)
        assert isinstance(allocation, SlurmAllocation)
        (node,) = allocation.nodes
        for _ in range(STEPS):
            began = time.perf_counter()
            allocation.interrupt(node)
            await allocation.renew(node, job)
            assert await node.run(Work(job, task(abs, -1), "0")) == 1
            found.append(time.perf_counter() - began)
        await allocation.release()
    finally:
        await cluster.close()
    return found


def measured(release: str) -> dict[str, float]:
    """The medians of one release, in seconds."""
    world = RealWorld()
    with put_up(release) as conf, tempfile.TemporaryDirectory() as name:
        times = world.run(reconfigure(world, conf, Path(name) / "nodes"))
        steps = world.run(step_to_step(world, conf, Path(name) / "steps"))
    return {
        "expand": median(times.expand),
        "shrink": median(times.shrink),
        "step to step": median(steps),
    }


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    print(f"the machine's load was {os.getloadavg()[0]:.1f}")
    found = {release: measured(release) for release in RELEASES}
    print(f"{'median, milliseconds':<22}" + "".join(f"{RELEASES[each]:>9}" for each in found))
    for what in ("expand", "shrink", "step to step"):
        print(f"{what:<22}" + "".join(f"{1e3 * each[what]:9.0f}" for each in found.values()))
    old, new = found["bookworm"], found["forky"]
    claims = [at_most(f"{what}, 26.05 over 22.05", new[what] / old[what], SLOWER) for what in old]
    claims.append(at_most("expand on 26.05, median s", new["expand"], EXPAND_GOAL))
    claims.append(at_most("shrink on 26.05, median s", new["shrink"], SHRINK_GOAL))
    conclude("releases", claims)


if __name__ == "__main__":
    main()
