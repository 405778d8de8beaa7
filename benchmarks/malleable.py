"""How fast an MPI program grows and shrinks on a real Slurm, and moves its data.

The peers, in the same run: a plain start of numpy and mpi4py, without which no process can join; a
plain Alltoallv of the same data; mpi4py's own operations; and the same program on a fixed number of
nodes. The published
library for malleable MPI programs (DMR) took 2.0 to 2.5 s per iteration, and 0.9 % more wall time.
Run it on a quiet machine, for five minutes: python benchmarks/malleable.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from boxes import put_up
from claims import at_least, at_most, conclude

from qtide.core.metrics import Metrics, measure
from qtide.runs.folder import RunFolder

HERE = Path(__file__).parent
EXAMPLE = HERE.parent / "examples" / "mpi" / "aggregation.py"
ROUNDS = 20
GIGABYTE = 131072  # rows of 8 kB
LIMIT = 300.0  # seconds per program
ITERATIONS, QUANTUM = 3, 40.0  # of the clustering; seconds of each quantum phase


def told(words: list[str], folder: Path, variables: Mapping[str, str]) -> str:
    """What a program prints."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | dict(variables),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT,
    ).stdout


def started() -> float:
    """Seconds of a plain start of numpy and mpi4py."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import numpy; from mpi4py import MPI"], check=True)
    return time.perf_counter() - began


def clustering(folder: Path, variables: Mapping[str, str], *words: str) -> Metrics:
    """The figures of the clustering; the first run of it compiles what others find."""
    runs = folder / f"clustering{len(words)}"
    runs.mkdir(exist_ok=True)
    size = ["--points", "2000", "--rounds", str(ITERATIONS), "--seconds", str(QUANTUM)]
    told([str(EXAMPLE), *size, *words], runs, variables)
    newest = RunFolder.find(runs / "qtide-runs", "last")
    return measure(newest.intervals())


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    with put_up() as conf, tempfile.TemporaryDirectory() as name:
        folder, variables = Path(name), {"SLURM_CONF": str(conf), "QTIDE_CLUSTER": "slurm"}
        load = os.getloadavg()[0]
        words = [str(HERE / "mpi" / "reconfigure.py"), str(ROUNDS), name]
        changes: dict[str, Any] = json.loads(told(words, folder, variables))
        plain = median(started() for _ in range(5))
        words = [str(HERE / "mpi" / "move.py"), str(GIGABYTE), name]
        moves: dict[str, list[float]] = json.loads(told(words, folder, variables))
        words = [str(HERE / "mpi" / "messages.py"), name]
        messages: dict[str, Any] = json.loads(told(words, folder, variables))
        warm = ["--rounds", "1", "--seconds", "0"]
        told([str(EXAMPLE), "--points", "2000", *warm], folder, variables)
        grown, fixed = clustering(folder, variables), clustering(folder, variables, "--static")
    expand, shrink = median(changes["expand"]), median(changes["shrink"])
    print(f"{ROUNDS} times 1 → 3 → 1 nodes; the machine's load was {load:.1f}")
    print(f"expand, until the first collective is done: median {expand:.3f} s")
    print(f"shrink: median {shrink:.3f} s;  peer, a plain start: {plain:.3f} s")
    print(f"nodes idle again after a shrink: median {median(changes['idle']):.3f} s")
    own, peer = min(moves["own"]), min(moves["plain"])
    print(f"1 GB from 2 to 3 ranks: {own:.2f} s;  peer, a plain Alltoallv: {peer:.2f} s")
    ratios = {what: each["own"] / each["raw"] for what, each in messages["operations"].items()}
    for what, each in messages["operations"].items():
        own_us, raw_us = 1e6 * each["own"], 1e6 * each["raw"]
        print(f"{what} B: {own_us:.1f} µs;  peer, mpi4py's own: {raw_us:.1f} µs")
    print(f"a rank that waits uses {100 * messages['waiting']:.1f} % of a core")
    for what, each in (("malleable", grown), ("static", fixed)):
        print(f"clustering, {what}: wall {each.total:.1f} s, {each.nodes_held:.1f} node-seconds")
    more = grown.total - fixed.total
    conclude(
        "malleable",
        [
            at_most("expand 1 → 3 nodes, median s", expand, 0.5),
            at_most("shrink 3 → 1 nodes, median s", shrink, 0.1),
            at_least("1 GB moved, speed relative to Alltoallv", peer / own, 0.6),
            at_most(
                "messages of 64 B to 64 MB, worst time relative to raw", max(ratios.values()), 1.1
            ),
            at_most("a rank that waits, % of a core", 100 * messages["waiting"], 20.0),
            at_most("clustering, overhead per iteration, s", more / ITERATIONS, 0.6),
            at_most("clustering, more wall time than static, %", 100 * more / fixed.total, 1.0),
        ],
    )


if __name__ == "__main__":
    main()
