"""Four programs of different shapes, for prediction.py.

Each node imports this file before its first task, so it imports nothing that takes long.
"""

from __future__ import annotations

import time

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

BLOCKS = 20
COMPUTING = 0.02
"""Share of the time. With a tenth, twelve tasks that begin together share two cores for a sixth."""


def read(seconds: float) -> int:
    """Wait as for a disk, block by block, and compute a little in between."""
    found = 0
    for _ in range(BLOCKS):
        time.sleep((1 - COMPUTING) * seconds / BLOCKS)
        until = time.process_time() + COMPUTING * seconds / BLOCKS
        while time.process_time() < until:
            found += 1
    return 0


@program
async def trio(seconds: float) -> None:
    """Three unequal tasks, a payload, a merge."""
    for _ in range(2):
        await classical(task(read, 1.5), task(read, 0.8), task(read, 0.3))
        await quantum(Burst(seconds))
        await task(read, 0.6)


@program
async def chain(seconds: float) -> None:
    """One task and one payload in turn."""
    for _ in range(3):
        await task(read, 0.9)
        await quantum(Burst(seconds))


@program
async def wide(seconds: float) -> None:
    """Six equal tasks, then a payload."""
    for _ in range(2):
        await classical(*(task(read, 0.7) for _ in range(6)))
        await quantum(Burst(seconds))


@program
async def late(seconds: float) -> None:
    """A payload first, then two classical phases."""
    for _ in range(2):
        await quantum(Burst(seconds))
        await classical(task(read, 0.5), task(read, 0.5))
        await classical(task(read, 1.0), task(read, 0.4), task(read, 0.4))


PROGRAMS = (trio, chain, wide, late)
