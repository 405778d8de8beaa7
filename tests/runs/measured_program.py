"""A program with real work: its tasks pretend nothing, and tell what their node had loaded."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst

RARE = "wave"
"""A module that nothing else imports."""


def note(folder: str, number: int) -> int:
    """Note in the run's folder whether the module had to be loaded for this call."""
    state = "warm" if RARE in sys.modules else "cold"
    importlib.import_module(RARE)
    with (Path(folder) / "notes").open("a") as notes:
        notes.write(f"{state}\n")
    return number


@program(nodes=2)
async def measured(rounds: int = 2, folder: str = "") -> list[int]:
    """Two tasks, a burst, one task; on two nodes of however many."""
    results: list[int] = []
    for number in range(rounds):
        pair = (task(note, folder, number), task(note, folder, number + 1))
        results += await classical(*pair)
        await quantum(Burst(0.01, number))
        results.append(await task(note, folder, number))
    return results
