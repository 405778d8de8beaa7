"""How fast a job on a real Slurm grows from 1 to 3 nodes and shrinks again.

The peer, in the same run: MPI_Comm_spawn of two processes on nodes that are already held, which is
how MPI programs grow today. It gets no nodes and gives none back, so it bounds what starting
processes costs. Run it on a quiet machine: python benchmarks/slurm_reconfigure.py
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from boxes import put_up
from claims import at_most, conclude

from qtide import task
from qtide.backends.clusters.cluster import Work
from qtide.backends.clusters.slurm.commands import environment
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld

ROUNDS = 20
EXPAND_GOAL, SHRINK_GOAL = 0.12, 0.08  # seconds, median
PEER_LIMIT = 300.0  # seconds

SPAWN = """
import json, sys, time
from mpi4py import MPI
if MPI.Comm.Get_parent() != MPI.COMM_NULL:
    MPI.Comm.Get_parent().Disconnect()
    sys.exit()
seconds = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    children = MPI.COMM_SELF.Spawn(sys.executable, args=[__file__], maxprocs=2)
    seconds.append(time.perf_counter() - began)
    children.Disconnect()
print(json.dumps(seconds))
"""


@dataclass
class Times:
    """The seconds of every round."""

    grant: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    shrink: list[float] = field(default_factory=list)

    @property
    def expand(self) -> list[float]:
        """From the request until all new agents have answered."""
        return [sum(pair) for pair in zip(self.grant, self.start, strict=True)]


async def reconfigure(world: RealWorld, conf: Path, folder: Path) -> Times:
    """1 → 3 → 1 nodes, repeatedly."""
    cluster = await SlurmCluster.connect(world, conf=conf)
    job = JobContext("reconfigure", Ledger("reconfigure", world.now), Values(folder / "values"))
    times = Times()
    try:
        await cluster.request(job, 1)
        for _ in range(ROUNDS):
            await one_round(cluster, job, times)
    finally:
        await cluster.close()
    return times


async def one_round(cluster: SlurmCluster, job: JobContext, times: Times) -> None:
    """Grow, let the new nodes prove that they work, shrink until Slurm has them back."""
    asked = cluster.world.now()
    allocation = await cluster.request(job, 2)
    times.grant.append(allocation.granted - asked)
    times.start.append(cluster.world.now() - allocation.granted)
    work = Work(job, task(abs, -1), "0")
    answers = await asyncio.gather(*(node.run(work) for node in allocation.nodes))
    assert answers == [1, 1]
    began = cluster.world.now()
    times.work.append(began - asked)
    await allocation.release()
    times.shrink.append(cluster.world.now() - began)


def spawned(conf: Path, folder: Path) -> list[float]:
    """The peer's seconds; raises RuntimeError with the reason if it cannot be measured."""
    python = throw_away_environment(folder)
    script = folder / "spawn.py"
    script.write_text(SPAWN)
    step = ("srun", "--mpi=pmi2", "--nodes=1", "--ntasks=1")
    words = ["salloc", "--quiet", "--nodes=3", *step, str(python), str(script), str(ROUNDS)]
    values: list[float] = json.loads(told(words, environment(conf)).splitlines()[-1])
    return values


def throw_away_environment(folder: Path) -> Path:
    """An environment with mpi4py and MPICH from their wheels."""
    python = folder / "venv" / "bin" / "python"
    told([sys.executable, "-m", "venv", str(folder / "venv")], dict(os.environ))
    quiet = ("--quiet", "--disable-pip-version-check")
    told([str(python), "-m", "pip", "install", *quiet, "mpi4py", "mpich"], dict(os.environ))
    return python


def told(words: list[str], env: dict[str, str]) -> str:
    """What a command prints; RuntimeError with its last line if it fails."""
    try:
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, check=False, timeout=PEER_LIMIT
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{words[0]} took longer than {PEER_LIMIT:g} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise RuntimeError(f"{Path(words[0]).name} failed: {last}")
    return done.stdout


def row(what: str, seconds: list[float]) -> str:
    """A line of the table, in milliseconds."""
    late = quantiles(seconds, n=20)[-1]
    numbers = f"{1e3 * median(seconds):8.0f} {1e3 * late:8.0f} {1e3 * max(seconds):8.0f}"
    return f"{what:<58}{numbers}"


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    world = RealWorld()
    with put_up() as conf, tempfile.TemporaryDirectory() as name:
        load, began = os.getloadavg()[0], time.perf_counter()
        times = world.run(reconfigure(world, conf, Path(name)))
        took = time.perf_counter() - began
        print(f"{ROUNDS} times 1 → 3 → 1 nodes in {took:.1f} s, the machine's load was {load:.1f}")
        print(f"{'milliseconds':<58}{'median':>8} {'p95':>8} {'worst':>8}")
        print(row("qtide: nodes granted", times.grant))
        print(row("qtide: agents started and answering", times.start))
        print(row("qtide: expand, whole", times.expand))
        print(row("qtide: expand, and a first task done on each new node", times.work))
        print(row("qtide: shrink, until Slurm has the nodes back", times.shrink))
        try:
            print(row("peer: MPI_Comm_spawn of 2 on nodes already held", spawned(conf, Path(name))))
        except (RuntimeError, ValueError, IndexError) as error:
            print(f"peer: MPI_Comm_spawn could not be measured here: {error}")
    conclude(
        "slurm_reconfigure",
        [
            at_most("expand 1 → 3 nodes, median s", median(times.expand), EXPAND_GOAL),
            at_most("shrink 3 → 1 nodes, median s", median(times.shrink), SHRINK_GOAL),
        ],
    )


if __name__ == "__main__":
    main()
