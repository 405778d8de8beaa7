"""Malleable tasks of a program: one that others ask for nodes, and one that loses some."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from qtide import classical, program, task, together

LIMIT = 3000


def rows(here: Any) -> list[float]:
    return [float(row) for row in here]


def stretch(folder: str, job: Any = None) -> tuple[bool, list[int]]:
    """Compute until the size has been 2, then 1, then 3; say so in files."""
    state = job.begin(sizes=[job.size], wrong=0)
    x = job.distributed("x", (12,), fill=rows)
    awaited = [("two", 2), ("one", 1), ("three", 3)]
    for step in job.steps(LIMIT):
        job.check()
        time.sleep(0.01)
        x.local += 1
        total = float(job.comm.allreduce(float(x.local.sum())))
        state.wrong += total != 66 + 12 * (step + 1)
        if state.sizes[-1] != job.size:
            state.sizes = [*state.sizes, job.size]
        name, size = awaited[0]
        if job.size == size:
            if job.root:
                Path(folder, name).touch()
            del awaited[0]
        if job.comm.bcast(not awaited):
            break
        awaited = job.comm.bcast(awaited)
    return state.wrong == 0, state.sizes


def until(file: str) -> str:
    """Hold a node until a file is there."""
    last = time.monotonic() + 60
    while not Path(file).exists():
        assert time.monotonic() < last, file
        time.sleep(0.01)
    return Path(file).name


@program
async def sharing(folder: str) -> Any:
    async def others() -> list[str]:
        first = await task(until, f"{folder}/two")
        pair = await classical(*[task(until, f"{folder}/one") for _ in range(2)])
        return [first, *pair]

    malleable = task(stretch, folder).on(1, 3, malleable=True)
    return await together(malleable, others())


def survive(folder: str, steps: int, job: Any = None) -> tuple[float, int]:
    """Save at each step; lose a node once, then the root, each by a kill; say where it went on."""
    state = job.begin(total=0.0, began=0)
    x = job.distributed("x", (12,), fill=rows)
    first = True
    for step in job.steps(steps):
        job.check()
        job.save()
        if job.rank == 0 and first:
            state.began = step
        first = False
        Path(folder, f"pid-{os.getpid()}").touch()
        if job.size > 1 and step > 2:
            _die_once(Path(folder, "member"), job.rank == 1)
            _die_once(Path(folder, "root"), job.rank == 0)
        x.local += 1
        state.total = float(job.comm.allreduce(float(x.local.sum())))
        if job.size == 1:
            time.sleep(0.05)  # until others come
    return state.total, int(job.comm.bcast(state.began))


def _die_once(mark: Path, here: bool) -> None:
    if here and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@program
async def losing(folder: str, steps: int = 400) -> Any:
    return await task(survive, folder, steps).on(1, 2, malleable=True)


def endure(folder: str, job: Any = None) -> int:
    """Compute until there is a file; return the step at which this process began."""
    began = None
    for step in job.steps(LIMIT):
        job.check()
        job.save()
        began = step if began is None else began
        Path(folder, f"pid-{os.getpid()}").touch()
        time.sleep(0.02)
        if job.comm.bcast(Path(folder, "finish").exists()):
            break
    return began or 0


@program
async def enduring(folder: str) -> int:
    return await task(endure, folder).on(1, 2, malleable=True)


def scale(steps: int, job: Any = None) -> int:
    """Steps that take half as long on twice as many nodes, until there are two; return the size."""
    for _ in job.steps(steps):
        job.check()
        time.sleep(0.4 / job.size)
        job.comm.barrier()
        if job.size > 1:
            break
    return int(job.size)


@program
async def scaling(folder: str, steps: int = 200) -> int:
    return await task(scale, steps).on(1, 3, malleable=True)
