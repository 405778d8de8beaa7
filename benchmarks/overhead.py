"""What qtide itself costs: a task, an agent, a journaled phase, a command that only reads.

And how fast virtual time runs. Peers in the same run: concurrent.futures.ProcessPoolExecutor, simpy
on the same model, and Python's own start.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import simpy
from claims import Claim, at_least, at_most, conclude

from qtide import task
from qtide.backends.clusters.cluster import Work
from qtide.backends.clusters.local import LocalCluster
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.programs.journal import Journal, JournalRecord
from qtide.service.local_service import LocalService

CALLS, STARTS, RECORDS = 200, 7, 200
READING = (["list"], ["show", "last"], ["logs", "last"], ["queue"], ["devices"])
SERVED = '[devices.dev]\nkind = "burst"\n'
JOBS, CYCLES, CLASSICAL, QUANTUM = 100, 2000, 90.0, 1.0


def timed(call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds for one call."""
    began = clock()
    call()
    return clock() - began


async def local(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of a task on a warm agent, and of a cold request until the agent answers."""
    world = RealWorld()
    job = JobContext("bench", Ledger("bench", world.now), Values(folder))
    starts = []
    for _ in range(STARTS):
        cluster = LocalCluster(world, 1)
        began = time.perf_counter()
        allocation = await cluster.request(job, 1)
        starts.append(time.perf_counter() - began)
        node, calls = allocation.nodes[0], []
        for _ in range(CALLS):
            began = time.perf_counter()
            await node.run(Work(job, task(divmod, 7, 3), "1"))
            calls.append(time.perf_counter() - began)
        await cluster.close()
    return calls, starts


def pool() -> tuple[list[float], list[float]]:
    """The same for a process pool with one worker (spawned, as an agent is)."""
    starts = []
    for _ in range(STARTS):
        with ProcessPoolExecutor(1, get_context("spawn")) as executor:
            answer = partial(_answer, executor)
            starts.append(timed(answer))
            calls = [timed(answer) for _ in range(CALLS)]
    return calls, starts


def _answer(executor: ProcessPoolExecutor) -> tuple[int, int]:
    return executor.submit(divmod, 7, 3).result()


def journaled(folder: Path) -> list[float]:
    """Seconds of a journaled phase with a small result, fsync included."""
    journal, values = Journal(folder / "journal", "bench"), Values(folder)
    seconds = []
    for number in range(RECORDS):
        began = time.perf_counter()
        journal.append(JournalRecord(str(number), "classical x", values.pack([1, 2, 3]).as_json()))
        seconds.append(time.perf_counter() - began)
    journal.close()
    return seconds


def virtual() -> tuple[float, int]:
    """The closed loop (jobs take turns on one QPU) in our virtual world: seconds and events."""
    world = VirtualWorld()
    waiting: deque[Any] = deque()
    busy = False

    async def job(classical: float) -> None:
        nonlocal busy
        for _ in range(CYCLES):
            await world.sleep(classical)
            if busy:
                turn = world.future()
                waiting.append(turn)
                await turn
            busy = True
            await world.sleep(QUANTUM)
            if waiting:
                waiting.popleft().set_result(None)
            else:
                busy = False

    async def main() -> None:
        await world.all_of([job(CLASSICAL + number / JOBS) for number in range(JOBS)])

    return timed(lambda: world.run(main()), time.process_time), world.events


def with_simpy() -> float:
    """The same model in simpy, in seconds."""
    world = simpy.Environment()
    device = simpy.Resource(world, 1)

    def job(classical: float) -> Any:
        for _ in range(CYCLES):
            yield world.timeout(classical)
            with device.request() as turn:
                yield turn
                yield world.timeout(QUANTUM)

    for number in range(JOBS):
        world.process(job(CLASSICAL + number / JOBS))
    return timed(world.run, time.process_time)


def commands(folder: Path) -> list[Claim]:
    """Seconds of commands that only read, as their users wait for them."""
    (folder / "service").mkdir()
    with LocalService(folder / "service", SERVED) as service:
        env = dict(os.environ) | {"QTIDE_RUNS": str(folder / "runs"), "QTIDE_URL": service.socket}
        qtide = [sys.executable, "-m", "qtide"]
        ran = [*qtide, "run", "synthetic", "published", "--cluster", "simulated"]
        subprocess.run(ran, env=env, check=True, capture_output=True)

        def seconds(words: Sequence[str]) -> float:
            call = partial(subprocess.run, words, env=env, check=True, capture_output=True)
            call()  # the first one compiles modules
            return median(timed(call) for _ in range(STARTS))

        found = {" ".join(words): seconds([*qtide, *words]) for words in READING}
    print(f"\n{'Python alone, s':34}{seconds([sys.executable, '-c', '']):10.3f}")
    for name, each in found.items():
        print(f"{f'qtide {name}, s':34}{each:10.3f}")
    return [at_most("the slowest command that only reads, s", max(found.values()), 0.3)]


def show(what: str, ours: list[float], peers: list[float]) -> None:
    """A line of the table."""
    peer = f"{1e3 * median(peers):14.3f}" if peers else f"{'–':>14}"
    print(f"{what:34}{1e3 * median(ours):10.3f}{peer}")


def costs(folder: Path) -> list[Claim]:
    """The cost of tasks, agents and the journal."""
    direct = median(timed(lambda: divmod(7, 3)) for _ in range(CALLS))
    calls, starts = asyncio.run(local(folder))
    pool_calls, pool_starts = pool()
    records = journaled(folder)
    print(f"{'ms, median':34}{'qtide':>10}{'process pool':>14}")
    show("a task on a warm worker", calls, pool_calls)
    show("a cold worker, until it answers", starts, pool_starts)
    show("a journaled phase", records, [])
    return [
        at_most("a task on a warm agent, ms beyond the call", 1e3 * (median(calls) - direct), 5),
        at_most("starting an agent, ms", 1e3 * median(starts), 100),
        at_most("a journaled phase, ms", 1e3 * median(records), 3),
    ]


def speed() -> list[Claim]:
    """The speed of virtual time, by processor time: the best of several rounds."""
    pairs = [(virtual(), with_simpy()) for _ in range(5)]
    seconds, events = min(ours for ours, _ in pairs)
    peer = min(theirs for _, theirs in pairs)
    print(f"\nclosed loop, {JOBS} jobs × {CYCLES} cycles: {seconds:.2f} s, simpy {peer:.2f} s")
    return [
        at_least("virtual world, events/s", events / seconds, 500_000),
        at_least("virtual world, times as fast as simpy", peer / seconds, 3),
    ]


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        claims = costs(Path(folder)) + commands(Path(folder))
    conclude("overhead", claims + speed())


if __name__ == "__main__":
    main()
