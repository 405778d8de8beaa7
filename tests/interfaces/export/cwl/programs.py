"""Programs that workflow engines run in tests."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from qtide import TimedOut, classical, command, program, quantum, task, together
from qtide.backends.payloads.payload import Burst

STEP = b"qtide.interfaces.export.step"


def square(x: int) -> int:
    print("squaring", x)
    return x * x


def refuse(x: int) -> int:
    raise ValueError(f"no {x}")


def who(rank: int = 0, size: int = 1) -> tuple[int, int]:
    return rank, size


def linger() -> None:
    time.sleep(60)


async def branch(n: int) -> int:
    """Goes on after a failure, while its neighbours do other things."""
    first = await task(square, n)
    try:
        first += await task(refuse, n)
    except ValueError as error:
        first += len(str(error)) + sum(await classical(task(square, 1), task(square, 2)))
    return first


@program
async def everything(boom: bool = False, seed: int = 0) -> list[Any]:
    """All that a program can do: branches, failures caught and not, limits, ranks, code."""
    found: list[Any] = [seed]
    found += await classical(task(square, 2), task(square, 3))
    found += await together(branch(1), branch(2), quantum(Burst(0.01, 5)))
    found.append(await task(who).on(2))
    found.append(await task(lambda x: x + 1, 41))
    try:
        await together(branch(3), task(refuse, 4), quantum(Burst(0.01, 6)))
    except ValueError as error:
        found.append(str(error))
    try:
        await task(linger).within(0.1)
    except TimedOut as error:
        found.append(str(error))
    if boom:
        await task(refuse, 5)
    return found


@program
async def either() -> list[Any]:
    """A payload that has an equivalent, and one that the device does not take."""
    found = [await quantum(Burst(0.01, 5), otherwise=task(square, 5))]
    found.append(await quantum(Burst(0.01, 6), otherwise=task(square, 6), patience=0))
    found.append(await quantum({"no": "burst"}, otherwise=task(square, 7)))
    return found


@program
async def unsendable() -> None:
    """Its task gets what nobody can serialise."""
    await task(str, threading.Lock())


def note(place: Path, what: str) -> int:
    with place.open("a") as file:
        file.write(f"{what}\n")
    return len(what)


def crash_once(place: Path) -> int:
    """Kill the step that runs this, as a node that dies would."""
    note(place, "crash")
    if place.read_text().count("crash") == 1:
        os.kill(next(pid for pid in _ancestors() if STEP in _words(pid)), signal.SIGKILL)
        time.sleep(60)
    return 1


@program
async def fragile(place: Path) -> int:
    """Notes each task that is really run; the one called last is killed from outside."""
    total: int = await task(note, place, "first")
    total += await quantum(Burst(0.01, 2))
    total += await task(crash_once, place)
    while not await task(_released, place):
        continue
    total += await task(note, place, "last")
    return total


def _released(place: Path) -> bool:
    note(place, "waiting")
    time.sleep(0.2)
    return place.with_suffix(".go").exists()


def _ancestors() -> list[int]:
    found = [os.getpid()]
    while found[-1] > 1:
        stat = Path(f"/proc/{found[-1]}/stat").read_text()
        found.append(int(stat.rpartition(")")[2].split()[1]))
    return found


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@program
async def commands() -> str:
    """A command whose file another one reads."""
    made = await command("sh", "-c", "echo $(echo {word}) > out.txt", writes="out.txt", name="made")
    return (await command("cat", "{out.txt}", reads=[made.files["out.txt"]])).output
