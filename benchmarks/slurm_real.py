"""Programs with real imports and short tasks on a real Slurm that this script starts.

Each node that elastic gets has to import numpy, dimod or Qiskit before it can work. It must not
lose against static by that: neither time nor, if quantum phases are short, node-seconds. Every
program runs once beforehand; the runs are then as those of a user who runs it again. With the
longest quantum phases, in which nearly nothing happens, the programs run side by side, each on its
own box. Run it on a quiet machine: python benchmarks/slurm_real.py
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from claims import Claim, at_most, conclude

from qtide import box
from qtide.core.metrics import Metrics, measure
from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec

PROGRAMS = ("portfolio", "colouring", "qaoa")
LIBRARY = {"portfolio": "numpy", "colouring": "dimod", "qaoa": "Qiskit"}
STRATEGIES = ("static", "elastic")
SHORT, MIDDLE, LONG = 0.5, 5.0, 20.0
ROUNDS = {SHORT: 6, MIDDLE: 4, LONG: 3}
REPEATS = {SHORT: 3, MIDDLE: 1, LONG: 1}
NODES = 3
WALL, USAGE = 1.05, {SHORT: 1.0, LONG: 0.5}
"""How much of static's time elastic may take, and of its node-seconds."""


@dataclass(frozen=True)
class Row:
    """What a program took under a strategy: the medians of its runs."""

    wall: float
    held: float
    starting: float
    busy: float

    @staticmethod
    def of(found: list[Metrics]) -> Row:
        """From the runs' metrics."""
        names = ("total", "nodes_held", "nodes_starting", "nodes_busy")
        return Row(*(median(getattr(each, name) for each in found) for name in names))


Table = dict[tuple[str, float, str], Row]


@contextmanager
def put_up() -> Iterator[None]:
    """A box for as long as something is measured; Slurm's commands use it."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        os.environ |= box.env(box.up(folder, nodes=NODES).folder)
        yield
    finally:
        box.down(folder)


def run(folder: Path, program: str, strategy: str, rounds: int, quantum: float) -> Metrics:
    """One run to its end."""
    file = Path(__file__).with_name("real") / f"{program}.py"
    words = ["--rounds", str(rounds), "--quantum-s", str(quantum)]
    spec = Spec(str(file), words, strategy, cluster="slurm", nodes=NODES)
    outcome = play(RunFolder.create(folder, f"{program}-{strategy}", spec), lambda *_: None)
    if outcome.error is not None:
        raise outcome.error
    return measure(outcome.run.intervals())


def measured(program: str, quantum: float) -> Table:
    """A program under both strategies, on a box of its own."""
    runs: dict[str, list[Metrics]] = {strategy: [] for strategy in STRATEGIES}
    with put_up(), tempfile.TemporaryDirectory() as name:
        run(Path(name), program, "static", 1, 0.0)
        for _ in range(REPEATS[quantum]):
            for strategy in STRATEGIES:
                found = run(Path(name), program, strategy, ROUNDS[quantum], quantum)
                runs[strategy].append(found)
    return {(program, quantum, strategy): Row.of(runs[strategy]) for strategy in STRATEGIES}


def show(table: Table) -> None:
    """All rows."""
    print(f"{'program':<22}{'quantum s':>9}  {'strategy':<9}{'wall s':>8}{'held':>8}", end="")
    print(f"{'starting':>10}{'busy':>8}  node-seconds")
    for (program, quantum, strategy), row in table.items():
        name = f"{program} ({LIBRARY[program]})"
        print(f"{name:<22}{quantum:9g}  {strategy:<9}{row.wall:8.1f}{row.held:8.1f}", end="")
        print(f"{row.starting:10.1f}{row.busy:8.1f}")


def claims_of(table: Table) -> list[Claim]:
    """What elastic takes of static's time and node-seconds."""
    claims = []
    for program, quantum in [key[:2] for key in table if key[2] == "elastic"]:
        static, elastic = (table[program, quantum, strategy] for strategy in STRATEGIES)
        tag = f"{LIBRARY[program]}, q = {quantum:g} s: elastic / static"
        claims.append(at_most(f"{tag}, wall", elastic.wall / static.wall, WALL))
        if quantum in USAGE:
            claims.append(at_most(f"{tag}, node-s", elastic.held / static.held, USAGE[quantum]))
    return claims


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    load, began = os.getloadavg()[0], time.perf_counter()
    table: Table = {}
    alone = [(program, quantum) for quantum in (SHORT, MIDDLE) for program in PROGRAMS]
    for found in starmap(measured, alone):
        table |= found
    with ProcessPoolExecutor(len(PROGRAMS), get_context("spawn")) as side_by_side:
        for found in side_by_side.map(measured, PROGRAMS, [LONG] * len(PROGRAMS)):
            table |= found
    took = time.perf_counter() - began
    print(f"took {took:.0f} s, the machine's load was {load:.1f}\n")
    show(table)
    conclude("slurm_real", claims_of(table))


if __name__ == "__main__":
    main()
