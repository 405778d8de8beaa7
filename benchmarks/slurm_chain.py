"""How long `split` waits from block to block on a real Slurm, and whether asking ahead helps.

The peer, in the same run: the next block is already queued, with a dependency on the current one,
as chains of heterogeneous jobs are usually submitted. It takes three minutes:
python benchmarks/slurm_chain.py
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import mean

from claims import Claim, at_most, conclude

from qtide import box
from qtide.backends.clusters.slurm.commands import Slurm, environment
from qtide.backends.clusters.slurm.companion import Companion, CompanionOptions

INTERVALS = (1, 10)
"""Seconds of Slurm's bf_interval; a site's default is 30."""
BLOCKS = 6
SAVING = 0.3
"""Seconds per block that would not justify a second way to ask."""
OPTIONS = CompanionOptions(qpu_by="gres", time_limit="5")


@contextmanager
def put_up(interval: int) -> Iterator[Slurm]:
    """A box whose backfill runs at this interval in seconds."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        conf = Path(box.env(box.up(folder, nodes=3).folder)["SLURM_CONF"])
        conf.write_text(re.sub(r"bf_interval=\d+", f"bf_interval={interval}", conf.read_text()))
        subprocess.run(["scontrol", "reconfigure"], env=environment(conf), check=True, timeout=30)
        yield Slurm(conf)
    finally:
        box.down(folder)


async def ask(slurm: Slurm, after: Companion | None = None) -> Companion:
    """Request three nodes and a QPU, to start only when another block is over, if one is given."""
    terms = [f"--dependency=afterany:{after.job}"] if after else []
    nodes = OPTIONS.salloc("chain", "benchmark", "3")
    return await Companion.submit(
        slurm, [*nodes, *terms, ":", *OPTIONS.qpu("chain-qpu", "benchmark"), *terms]
    )


async def chain(slurm: Slurm, works: list[float], *, ahead: bool) -> list[float]:
    """Run blocks of these lengths; return how long each one's successor was waited for."""
    waits = []
    block = await ask(slurm)
    await block.granted
    for seconds in works:
        successor = await ask(slurm, block) if ahead else None
        await asyncio.sleep(seconds / 2)
        await block.end_qpu()
        await asyncio.sleep(seconds / 2)
        began, end = time.perf_counter(), asyncio.create_task(block.end())
        if successor is None:
            await end
            successor = await ask(slurm)
        await successor.granted
        waits.append(time.perf_counter() - began)
        await end
        block = successor
    await block.end()
    return waits


async def both(slurm: Slurm, interval: int) -> Claim:
    """The same blocks in both ways."""
    chance = Random(interval)
    works = [chance.uniform(0.4, 1.4) * interval for _ in range(BLOCKS)]
    ours = await chain(slurm, works, ahead=False)
    peers = await chain(slurm, works, ahead=True)
    figures = f"{mean(ours):14.2f}{max(ours):8.2f}{mean(peers):14.2f}{max(peers):8.2f}"
    print(f"{interval:11}{figures}", flush=True)
    what = f"bf_interval {interval}: what asking ahead would save, s per block"
    return at_most(what, mean(ours) - mean(peers), SAVING)


def main() -> None:
    """Measure both ways under every interval."""
    print(f"{'s':>11}{'at the end':>14}{'worst':>8}{'ahead':>14}{'worst':>8}")
    claims = []
    for interval in INTERVALS:
        with put_up(interval) as slurm:
            claims.append(asyncio.run(both(slurm, interval)))
    conclude("slurm_chain", claims)


if __name__ == "__main__":
    main()
