"""What Slurm says about its queue now: when a request would start, and how many jobs wait."""

from __future__ import annotations

import re
import time

from qtide.clusters.kind import Queue
from qtide.slurm.commands import Slurm, SlurmFailed, reason
from qtide.slurm.options import Options
from qtide.slurm.queue import entries

START = re.compile(r"to start at (\d+)")
"""What sbatch prints with --test-only; times are in seconds since 1970."""


async def present(slurm: Slurm, options: Options, nodes: int) -> Queue:
    """Ask Slurm when a companion with so many nodes would start; nothing is submitted."""
    slurm.check()
    start = await _start(slurm, options.salloc("qtide", "qtide", str(nodes))[1:])
    where = [f"--partition={options.partition}"] if options.partition else []
    waiting = len(await entries(slurm, "--states=PENDING", *where))
    wait = max(0.0, start - time.time())
    jobs = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
    return Queue(wait, f"Slurm would grant {nodes} nodes in {wait:.0f} s ({jobs})")


async def _start(slurm: Slurm, terms: list[str]) -> float:
    _, out, err = await slurm.said("sbatch", "--test-only", *terms, "--wrap=true")
    text = out + err
    found = START.search(text)
    if found is None:
        raise SlurmFailed(f"sbatch does not say when a job would start: {reason(text)}")
    return float(found[1])
