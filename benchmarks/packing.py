"""Tasks that share nodes: how full the nodes are, how fast small tasks go, and what that saves.

Peers in the same run: HyperQueue with its resource requests, Dask with its resources, and a process
pool. Arguments: the number of tasks of the mixes, and which parts to run, as in `2000 mixes rates`.
The mixes are tasks of 1 to 8 cores and 10 to 200 ms on two local nodes of 8 cores, also with GPUs;
their bound is the area of all tasks, or the longest. While tasks run on them, random processes of
the nodes are killed. On a box, a phase of 64 one-core tasks runs on
nodes of 8 cores, with and without needs; and a program with a CPU, a QPU and a GPU phase. Sizes
that are chosen, `on(1, 8)`, and those that change while a task runs, are compared in virtual time
with every fixed size.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from claims import Claim, at_least, at_most, conclude

from qtide import box, classical, pretend, program, session, task
from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import NodeLost, NodeUnusable
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.programs.phase import Task
from qtide.strategies.node_pool import NodePool
from qtide.strategies.strategy import strategy_names

NODES, CORES, GPUS = 2, 8, 4
TINY = 4_000
"""Tasks of one millisecond."""
MILLISECOND = 0.001
KILLS = 50

Shape = tuple[int, int, float]
"""Cores, GPUs and seconds of a task."""


def mix(tasks: int, *, gpus: bool) -> list[Shape]:
    """Random tasks; with GPUs, every third needs one."""
    chance = Random(1)
    return [
        (chance.randint(1, CORES), int(gpus and chance.random() < 1 / 3), chance.uniform(0.01, 0.2))
        for _ in range(tasks)
    ]


def bound(shapes: list[Shape]) -> float:
    """Seconds that no schedule can beat."""
    cores = sum(cores * seconds for cores, _, seconds in shapes) / (NODES * CORES)
    gpus = sum(number * seconds for _, number, seconds in shapes) / (NODES * GPUS)
    return max(cores, gpus, *(seconds for *_, seconds in shapes))


def by_qtide(shapes: list[Shape]) -> float:
    """Seconds that a phase of these tasks takes; its agents are warm, as its peers' workers are."""

    async def measured(folder: Path) -> float:
        async with two_nodes(folder) as pool:

            async def run(tasks: list[Task[None]]) -> float:
                phase = classical(*tasks)
                phase.use()
                began = time.perf_counter()
                await pool.run(phase, "1")
                return time.perf_counter() - began

            sizes = sorted({(cores, gpus) for cores, gpus, _ in shapes}) * NODES
            await run([task(time.sleep, 0.0).needs(*each) for each in sizes])
            return await run(
                [task(time.sleep, seconds).needs(cores, gpus) for cores, gpus, seconds in shapes]
            )

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder)))


@asynccontextmanager
async def two_nodes(folder: Path) -> AsyncIterator[NodePool]:
    """A pool of the local nodes, granted together."""
    world = RealWorld()
    cluster = LocalCluster(world, NODES, LocalOptions(cores=CORES, gpus=GPUS))
    ledger = Ledger("packing", world.now, folder / "ledger")
    job = JobContext("packing", ledger, Values(folder / "values"))
    pool = NodePool(world, cluster, job, NODES)
    pool.join(await cluster.request(job, NODES))
    try:
        yield pool
    finally:
        await pool.close()
        await cluster.close()


def by_dask(shapes: list[Shape]) -> float:
    """Seconds of Dask's `Client.submit` with resources."""
    from distributed import Client
    from distributed import LocalCluster as DaskCluster

    resources = {"CORES": CORES, "GPUS": GPUS}
    with (
        DaskCluster(
            NODES, threads_per_worker=CORES, resources=resources, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(time.sleep, [0.0] * NODES * CORES, pure=False))
        began = time.perf_counter()
        client.gather(
            [
                client.submit(
                    time.sleep, seconds, pure=False, resources={"CORES": cores, "GPUS": gpus}
                )
                for cores, gpus, seconds in shapes
            ]
        )
        return time.perf_counter() - began


def by_hyperqueue(shapes: list[Shape]) -> float:
    """Seconds from the first task's start to the last one's end; its client polls once per second.

    Its Python tasks start an interpreter each, so these are `sleep`.
    """
    from hyperqueue import Job
    from hyperqueue import LocalCluster as HyperQueueCluster
    from hyperqueue.cluster import WorkerConfig
    from hyperqueue.task.task import ResourceRequest

    with (
        tempfile.TemporaryDirectory(prefix="qtide-hq-") as folder,
        HyperQueueCluster(folder) as cluster,
    ):
        for _ in range(NODES):
            cluster.start_worker(WorkerConfig(cores=CORES))
        client, job = cluster.client(), Job(folder)
        for number, (cores, _, seconds) in enumerate(shapes):
            script = f"date +%s.%N; sleep {seconds:.4f}; date +%s.%N"
            job.program(
                ["sh", "-c", script],
                stdout=f"{folder}/{number}.out",
                stderr=None,
                resources=ResourceRequest(cpus=cores),
            )
        client.wait_for_jobs([client.submit(job)])
        texts = [
            Path(f"{folder}/{number}.out").read_text().split() for number in range(len(shapes))
        ]
        return max(float(end) for _, end in texts) - min(float(start) for start, _ in texts)


def mixes(tasks: int) -> list[Claim]:
    """Makespans of the mixes, against the bound and the peers."""
    claims = []
    print(f"{'mix':12}{'bound s':>10}{'qtide s':>10}{'HyperQueue s':>14}{'Dask s':>10}")
    for name, gpus in (("cores", False), ("cores, GPUs", True)):
        shapes = mix(tasks, gpus=gpus)
        least, ours, dask = bound(shapes), by_qtide(shapes), by_dask(shapes)
        queue = None if gpus else by_hyperqueue(shapes)  # its local cluster has no pretended GPUs
        shown = f"{queue:14.2f}" if queue is not None else f"{'–':>14}"
        print(f"{name:12}{least:10.2f}{ours:10.2f}{shown}{dask:10.2f}")
        peers = [each for each in (queue, dask) if each is not None]
        claims += [
            at_most(f"{name}: makespan, of the bound", ours / least, 1.10),
            at_most(f"{name}: makespan, of the better peer's", ours / min(peers), 1.0),
        ]
    return claims


def by_session() -> float:
    """Seconds of a session's `map`, whose short calls share batches, each on one core."""
    with (
        tempfile.TemporaryDirectory() as runs,
        session(cluster=f"local:{NODES}", cores=CORES, needs="cores=1", runs=runs) as opened,
    ):
        list(opened.map(time.sleep, [0.0] * NODES * CORES))
        began = time.perf_counter()
        list(opened.map(time.sleep, [MILLISECOND] * TINY))
        return time.perf_counter() - began


def rates() -> list[Claim]:
    """One-core calls of a millisecond, per second: those of a session, and tasks of a phase."""
    shapes: list[Shape] = [(1, 0, MILLISECOND)] * TINY
    ours, phase, dask = (TINY / each for each in (by_session(), by_qtide(shapes), by_dask(shapes)))
    with ProcessPoolExecutor(NODES * CORES) as executor:
        list(executor.map(time.sleep, [0.0] * 100))
        began = time.perf_counter()
        list(executor.map(time.sleep, [MILLISECOND] * TINY))
        pool = TINY / (time.perf_counter() - began)
    print(
        f"\n1 ms on one core, per second: session {ours:,.0f}, phase {phase:,.0f}, "
        f"Dask {dask:,.0f}, process pool {pool:,.0f}"
    )
    return [
        at_least("calls of 1 ms: rate of a session, of Dask's", ours / dask, 1.0),
        at_least("calls of 1 ms: rate of a session, of a process pool's", ours / pool, 0.7),
        at_least("tasks of 1 ms: rate of a phase, of Dask's", phase / dask, 1.0),
        at_least("tasks of 1 ms: rate of a phase, of a process pool's", phase / pool, 0.7),
    ]


def solve(serial: float, parallel: float, rank: int = 0, size: int = 1) -> None:
    """Take the time of Amdahl's law, and a little for each node that takes part."""
    pretend(serial + parallel / size + 0.01 * size * (rank >= 0))


@program
async def sized(serial: float, parallel: float, least: int, most: int) -> None:
    """Solve twenty times."""
    for _ in range(20):
        await task(solve, serial, parallel).on(least, most)


def compute(serial: float, parallel: float, job: Any = None) -> None:
    """The same as one task of a hundred steps, which take as long as that on so many nodes."""
    for _ in job.steps(100):
        job.check()
        solve(serial / 5, parallel / 5, size=job.size)


@program
async def resized(serial: float, parallel: float, least: int, most: int) -> None:
    """Compute once, on a number of nodes that may change meanwhile."""
    await task(compute, serial, parallel).on(least, most, malleable=True)


def sizes() -> list[Claim]:
    """Cost of sizes that are chosen, before a task or while it runs."""
    return [*chosen("on(1, 8)", sized), *chosen("on(1, 8, malleable=True)", resized)]


def chosen(name: str, solving: Any) -> list[Claim]:
    """Cost of chosen sizes, by the user's weighing, over 50 random programs."""
    chance, best, worst = Random(2), [], []
    with tempfile.TemporaryDirectory() as runs:
        for _ in range(50):
            serial, parallel = chance.uniform(0, 10), chance.uniform(5, 100)
            weight = chance.choice([0.25, 0.5, 0.75, 0.9])
            run = solving.using(cluster="simulated:8", runs=runs, time_weight=weight).run

            def cost(least: int, most: int) -> float:
                figures = run(serial, parallel, least, most).metrics  # noqa: B023 - called at once
                return float(weight * figures.total + (1 - weight) * figures.nodes_held)  # noqa: B023

            fixed = [cost(nodes, nodes) for nodes in range(1, 9)]
            ours = cost(1, 8)
            best.append(ours / min(fixed))
            worst.append(ours / max(fixed))
    print(f"\n{name}: {mean(best):.3f} of the best fixed size, {mean(worst):.3f} of the worst")
    return [
        at_most(f"{name}: mean cost, of the best fixed size's", mean(best), 1.05),
        at_most(f"{name}: mean cost, of the worst fixed size's", mean(worst), 0.9),
    ]


def squared(number: int, seconds: float) -> int:
    """Work for a while."""
    time.sleep(seconds)
    return number * number


def survival() -> list[Claim]:
    """Random kills of supervisors, agents, nurseries and tasks' processes while tasks run."""
    others = {*_below(os.getpid())}
    with tempfile.TemporaryDirectory() as folder:
        wrong, given_up, held = asyncio.run(_killed(Path(folder), others))
    left = len({*_below(os.getpid())} - others)
    print(f"\n{KILLS} kills: {given_up} tasks lost their processes or all nodes, {held} nodes held")
    return [
        at_most(f"{KILLS} kills: wrong results", wrong, 0),
        at_least(f"{KILLS} kills: nodes held after them", held, NODES),
        at_most(f"{KILLS} kills: processes left", left, 0),
    ]


async def _killed(folder: Path, others: set[int]) -> tuple[int, int, int]:
    """The numbers of wrong results, of tasks that were given up, and of nodes held in the end."""
    chance, wrong, given_up, number = Random(), 0, 0, 0

    async def one(pool: NodePool, n: int) -> int:
        phase = classical(task(squared, n, chance.uniform(0, 0.1)).needs(chance.randint(1, CORES)))
        phase.use()
        (result,) = await pool.run(phase, str(n))
        return int(result)

    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            if there := sorted({*_below(os.getpid())} - others):
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(there), signal.SIGKILL)

    async with two_nodes(folder) as pool:
        killing = asyncio.create_task(kill())
        while not killing.done():
            numbers = range(number, number := number + 50)
            found = await asyncio.gather(*(one(pool, n) for n in numbers), return_exceptions=True)
            # nodes are not usable if their agents are killed while they start, thrice in a row
            lost = [isinstance(each, NodeLost | NodeUnusable) for each in found]
            given_up += sum(lost)
            pairs = zip(found, numbers, lost, strict=True)
            wrong += sum(each != n * n for each, n, gone in pairs if not gone)
        await killing
        limit = time.monotonic() + 60
        while time.monotonic() < limit and pool.size < NODES:
            await asyncio.gather(*(one(pool, n) for n in range(50)), return_exceptions=True)
        return wrong, given_up, pool.size


def _below(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have, but for dead ones."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, file.read_text().split()):
                if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    yield child
                yield from _below(child)


WIDE = """
import time
from qtide import classical, program, task

@program
async def wide(seconds: float, tasks: int = 64):
    return len(await classical(*(task(time.sleep, seconds) for _ in range(tasks))))
"""
THREE = """
import time
from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

@program
async def three():
    await classical(*(task(time.sleep, 4.0) for _ in range(8))).needs(cores=1)
    await quantum(Burst(12.0))
    return len(await classical(*(task(time.sleep, 6.0) for _ in range(8))).needs(1, 1, kind="gpu"))
"""


def on_a_box() -> list[Claim]:
    """Node-seconds of a wide phase with and without needs; charges of a program on two kinds."""
    with tempfile.TemporaryDirectory(prefix="qtide-box-") as folder:
        place = Path(folder)
        (place / "wide.py").write_text(WIDE)
        (place / "three.py").write_text(THREE)
        kinds = ["wide:8,cores=8,memory=1GB", "gpu:2,cores=8,gpus=4,memory=1GB"]
        box.up(place / "box", nodes=2, kinds=kinds)
        try:
            return [*_wide(place, 4.0), *_wide(place, 1.0), *_three(place)]
        finally:
            box.down(place / "box")


def _wide(place: Path, seconds: float) -> list[Claim]:
    claims, length = [], f"tasks of {seconds:g} s"
    print(f"\n{f'64 {length}':16}{'whole nodes':>24}{'one core each':>24}")
    for name in strategy_names():
        words = ("wide.py", str(seconds), "--cluster", "slurm:wide", "--strategy", name)
        whole, parts = _run(place, *words), _run(place, *words, "--needs", "cores=1")
        shown = [
            f"{each['total']:8.1f} s{each['nodes_held']:8.1f} node-s" for each in (whole, parts)
        ]
        print(f"{name:16}{shown[0]:>24}{shown[1]:>24}")
        ratio = parts["nodes_held"] / whole["nodes_held"]
        claims += [
            at_most(f"{name}, {length}: node-seconds with needs, of those without", ratio, 0.2),
            at_most(
                f"{name}, {length}: wall with needs, of that without",
                parts["total"] / whole["total"],
                1,
            ),
        ]
    return claims


def _three(place: Path) -> list[Claim]:
    kinds = ("--kind", "cpu:partition=wide", "--kind", "gpu:partition=gpu", "--nodes", "2")
    billing = ("--billing", "CPU=1,GRES/gpu=10")
    found = {
        name: _run(place, "three.py", "--cluster", "slurm", "--strategy", name, *kinds, *billing)
        for name in ("static", "elastic")
    }
    for name, each in found.items():
        charges = ", ".join(
            f"{each[f'{unit}_held']:,.0f} {unit}-s" for unit in ("cores", "gpus", "billing")
        )
        print(f"CPU, QPU and GPU phases, {name}: {each['total']:.1f} s, {charges}")
    ours, base = found["elastic"], found["static"]
    return [
        *(
            at_most(
                f"two kinds: elastic's {unit}-s, of static's",
                ours[f"{unit}_held"] / base[f"{unit}_held"],
                0.6,
            )
            for unit in ("cores", "gpus", "billing")
        ),
        at_most("two kinds: elastic's wall, of static's", ours["total"] / base["total"], 1.05),
    ]


def _run(place: Path, *words: str) -> dict[str, float]:
    """The metrics of a run on the box; its program has run once before, so elastic knows it."""
    command = [sys.executable, "-m", "qtide", "run", *words, "--json"]
    env = os.environ | box.env(place / "box")
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=True)
    metrics: dict[str, float] = json.loads(done.stdout)["metrics"]
    return metrics


def main() -> None:
    """Measure and conclude."""
    tasks, *parts = [*sys.argv[1:]] or ["2000"]
    claims = []
    if not parts or "mixes" in parts:
        claims += mixes(int(tasks))
    if not parts or "rates" in parts:
        claims += rates()
    if not parts or "kills" in parts:
        claims += survival()
    if not parts or "box" in parts:
        claims += on_a_box()
    if not parts or "sizes" in parts:
        claims += sizes()
    conclude("packing", claims)


if __name__ == "__main__":
    main()
