"""Programs that tests run by their file, as a user would."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from qtide import classical, program, quantum, task
from qtide.backends.payloads.payload import Burst


def count(folder: str, number: int) -> int:
    """Leave a mark for each time it really runs."""
    time.sleep(0.05)
    with (Path(folder) / "marks").open("a") as marks:
        marks.write(f"{number} ")
    return number * number


@program
async def squares(folder: str, rounds: int = 6, seed: int = 0) -> list[Any]:
    """Pairs of tasks, then a burst, several times."""
    results: list[Any] = [seed]
    for number in range(rounds):
        pair = (task(count, folder, 2 * number), task(count, folder, 2 * number + 1))
        results += await classical(*pair)
        results.append(await quantum(Burst(0.05, number)))
    return results


def divide(number: int, by: int) -> float:
    return number / by


@program
async def breaks(folder: str) -> float:
    """Fails until there is a file called `mended`."""
    await task(count, folder, 1)
    return float(await task(divide, 6, int((Path(folder) / "mended").exists()) * 3))


@program
async def unstorable() -> None:
    await task(give_generator)


def give_generator() -> Any:
    return (each for each in [1])
