"""The overhead of a malleable MPI program: an item, and the program that it runs.

This file is that program, too: `python malleability.py FOLDER ROUNDS SECONDS` grows to all nodes
before each classical phase, keeps one node for each quantum phase of so many seconds, and prints
what each round lost by it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

CLASSICAL = 0.5
"""Seconds of a classical phase."""
LIMIT = 300.0
"""Seconds within which the program has to end."""


def main(folder: str, rounds: int, quantum: float) -> None:
    """Run the program; its root prints the seconds that each round took to grow and to shrink."""
    from qtide.malleable import Job

    with Job(most=3, folder=folder, name=f"quantum-{quantum:g}") as job:
        job.begin(round=0, lost=[])
        while job.state.round < rounds:
            began = time.perf_counter()
            job.expand(3, least=3, wait=60)
            grown = time.perf_counter() - began
            time.sleep(CLASSICAL)
            job.comm.Barrier()
            began = time.perf_counter()
            job.minimise()
            job.state.lost.append(grown + time.perf_counter() - began)
            end = time.monotonic() + quantum
            time.sleep(max(0.0, quantum - job.lead))
            if quantum and job.state.round + 1 < rounds:
                job.expand(wait=0)  # its nodes start now, and are there when the answer is
            time.sleep(max(0.0, end - time.monotonic()))
            job.state.round += 1
        sys.stdout.write(f"{json.dumps(job.state.lost)}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    sys.exit()

from qtide.core.errors import QtideError  # noqa: E402 - the program needs none of it
from qtide.experiments.reproduction.clustering_tables import cluster  # noqa: E402
from qtide.experiments.reproduction.published import TABLES  # noqa: E402
from qtide.experiments.reproduction.result import (  # noqa: E402
    ItemResult,
    Statement,
    Value,
    Workplace,
)

ITERATIONS = 4
"""Of the published jobs, each of which grew and shrank once."""
ROUNDS = 6
QUANTUM = 4.0
"""Seconds of a quantum phase here, if there is one: long enough to ask for nodes ahead."""


def overhead(place: Workplace, name: str, _: float) -> ItemResult:
    """Measure what an MPI program loses per iteration because it grows and shrinks."""
    if find_spec("mpi4py") is None:
        raise QtideError("mpi4py is missing; install it with: pip install 'qtide[mpi]'")
    rounds = ROUNDS * place.repetitions
    with cluster() as (kind, note):
        lost = {
            quantum: _lost(place.folder / name, kind, rounds, quantum) for quantum in (QUANTUM, 0.0)
        }
    values = tuple(_values(place.folder, name, lost))
    return ItemResult(
        name,
        "Overhead of malleable MPI programs",
        "Three ways to share a QPU, tables 1 to 4: malleable beside static, per iteration",
        values,
        advances=tuple(
            Statement(
                f"{each.what} is less than DMR's", (each.ours or 0.0) < (each.published or 0.0)
            )
            for each in values
        ),
        notes=(
            note,
            "Time is not scaled. What counts is how long the program stands still to grow from one "
            "node to three and to shrink again.",
            "Before the end of a quantum phase, the program asks for its nodes ahead; without "
            "quantum time, it cannot.",
        ),
    )


def _lost(folder: Path, kind: str, rounds: int, quantum: float) -> list[float]:
    """Run the program on the cluster; return what each round but the first lost."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, __file__, str(folder), f"{rounds + 1}", f"{quantum:g}"]
    variables = os.environ | ({"QTIDE_CLUSTER": kind} if kind == "slurm" else {})
    done = subprocess.run(
        words,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT + rounds * (quantum + 10 * CLASSICAL),
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise QtideError(f"the malleable MPI program failed: {last}")
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found[1:]  # the first growth also starts MPI


def _values(base: Path, name: str, lost: dict[float, list[float]]) -> Iterator[Value]:
    for site in ("qluster", "leonardo"):
        for quantum, there in ((120, QUANTUM), (0, 0.0)):
            walls = {
                row["strategy"]: row["wall"]
                for row in TABLES[site]
                if (row["jobs"], row["quantum_s"]) == (1, quantum)
            }
            published = (walls["malleable"] - walls["static"]) / ITERATIONS
            what = f"beside {site.capitalize()}, quantum phases of {quantum} s: overhead"
            folders = sorted((base / name).glob(f"quantum-{there:g}-*"))
            runs = (str(folders[-1].relative_to(base)),)
            yield Value(what, "s", tuple(lost[there]), published, runs=runs, is_cost=True)
