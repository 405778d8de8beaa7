"""Where a device computes: what a worker process costs a small run, and what it adds to a payload.

The peer is the same device in the driver's own process, in the same run. A small run is measured in
seconds of a processor, since its wall time is mostly that of whatever else the machine does.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from claims import at_least, at_most, conclude

from qtide.backends.devices.device import choice
from qtide.backends.devices.runner import Runner
from qtide.backends.payloads.formats.iqm import IqmBatch, IqmCircuit, Operation

ROUNDS, PAYLOADS = 5, 200
EXAMPLE = Path(__file__).parents[1] / "examples" / "hello.py"
IN_A_WORKER = """
from qtide.backends.devices.annealer import Annealer
Annealer.light = {light}
from qtide.interfaces.cli.main import main
main()
"""
SMALL = ("run", str(EXAMPLE), "--cluster", "local:1", "--qpu", "annealer")


def processor() -> float:
    """Seconds of a processor that all children so far have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def small_run(light: bool) -> float:
    """What a small run uses, with its annealer in the driver or in a worker."""
    before = processor()
    with tempfile.TemporaryDirectory() as folder:
        code = IN_A_WORKER.format(light=light)
        words = [sys.executable, "-c", code, *SMALL, "--runs", folder]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
    return processor() - before


async def start(kind: str) -> tuple[float, float]:
    """Seconds until a worker is ready: by the clock, and of a processor."""
    before, began = processor(), time.perf_counter()
    runner = Runner(choice(kind))
    await runner.ready()
    wall = time.perf_counter() - began
    await runner.close()
    return wall, processor() - before


async def payloads() -> tuple[float, float]:
    """Milliseconds per small circuit: in this process, and in a worker."""
    chosen = choice("star")
    measure = Operation("measure", ("QB1", "QB2"), {"key": "m"})
    batch = IqmBatch((IqmCircuit("small", (measure,)),))
    runner = Runner(chosen)
    chosen.device.warm_up()
    await runner.ready()
    here = [_timed(lambda: chosen.device.solve(batch, 100, 0)) for _ in range(PAYLOADS)]
    there = [await _waited(runner.solve(batch, 100, 0)) for _ in range(PAYLOADS)]
    await runner.close()
    return statistics.median(here) * 1000, statistics.median(there) * 1000


def _timed(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


async def _waited(work: Any) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def main() -> None:
    """Measure and conclude."""
    os.environ["PYTHONWARNINGS"] = "ignore"
    print(f"{'worker of':>12}{'ready after, s':>16}{'of a processor, s':>20}")
    for kind in ("burst", "annealer", "star", "atoms"):
        wall, used = asyncio.run(start(kind))
        print(f"{kind:>12}{wall:>16.2f}{used:>20.2f}")
    pairs = [(small_run(True), small_run(False)) for _ in range(ROUNDS)]
    driver, worker = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"\na small run, annealer in the driver: {driver:.2f} s of a processor")
    print(f"a small run, annealer in a worker:   {worker:.2f} s of a processor")
    here, there = asyncio.run(payloads())
    print(f"a small circuit: {here:.2f} ms in this process, {there:.2f} ms in a worker")
    conclude(
        "devices",
        [
            at_least("a small run with a worker, of one without", worker / driver, 1.2),
            at_most("what a worker adds to a small circuit, ms", there - here, 5.0),
        ],
    )


if __name__ == "__main__":
    main()
