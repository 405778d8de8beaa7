"""The published experiment on a real Slurm that this script starts: our table and the paper's.

Time is scaled: modelled seconds pass faster, but Slurm itself does not. So its own overheads weigh
about twenty times as much as at full length; the claims hold even so. The experiments with long and
with short quantum phases run side by side, each on its own box: the tasks only wait. Leases are
qtide's own, except that the time from step to step is also measured with leases granted by Slurm.
Run it on a quiet machine: python benchmarks/slurm_strategies.py
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from claims import Claim, at_most, conclude

from qtide import box
from qtide.core.ledger import Interval
from qtide.runs.comparison import Case, compare
from qtide.runs.spec import Spec

TASKS, SCORE, ROUNDS, NODES = (77.3, 4.6, 0.2), 52.0, 4, 3
CLASSICAL = max(TASKS) + SCORE
LONG, SHORT = 120.0, 0.0
SCALES = {LONG: 0.045, SHORT: 0.08}
STEP_SCALE = 0.004
STRATEGIES = ("static", "workflow", "malleable", "elastic")
JOBS = (1, 2)

PUBLISHED = {
    ("static", 1, LONG): (1019.58, 3058.74),
    ("workflow", 1, LONG): (1057.80, 1161.20),
    ("malleable", 1, LONG): (1029.06, 1647.75),
    ("static", 2, LONG): (2038.43, 6115.30),
    ("workflow", 2, LONG): (1226.00, 2324.00),
    ("malleable", 2, LONG): (1127.65, 2817.73),
    ("static", 1, SHORT): (539.44, 1618.33),
    ("workflow", 1, SHORT): (569.00, 1148.00),
    ("malleable", 1, SHORT): (549.60, 1168.29),
    ("static", 2, SHORT): (1076.98, 3230.95),
    ("workflow", 2, SHORT): (1089.00, 2324.00),
    ("malleable", 2, SHORT): (648.61, 1622.63),
}
"""Strategy, jobs, seconds of a quantum phase: wall seconds and node-seconds, on 3 nodes.

Rocco et al. 2025, doi 10.1109/QCE65121.2025.10289, the cluster called qluster. Their workflow held
3 nodes while it scored a clustering, and was charged for 1: ours holds and counts 1.
"""


@dataclass(frozen=True)
class Row:
    """What one case took, in seconds and node-seconds of the modelled clock."""

    wall: float
    usage: float


Table = dict[tuple[str, int, float], Row]


@contextmanager
def put_up() -> Iterator[None]:
    """A box for the duration of the benchmark; Slurm's commands use it."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        os.environ |= box.env(box.up(folder, nodes=NODES, qpus=max(JOBS)).folder)
        yield
    finally:
        box.down(folder)


def spec(quantum: float, scale: float) -> Spec:
    """The published experiment."""
    words = ["published", "--quantum-s", str(quantum)]
    return Spec("synthetic", words, cluster="slurm", time_scale=scale, nodes=NODES)


def step_gaps(intervals: list[Interval], scale: float) -> list[float]:
    """Real seconds from the last work of each phase to the first of the next."""
    busy = [each for each in intervals if each.what == "busy"]
    spans = sorted((e.start, e.end) for e in intervals if e.what == "phase")
    works = [[e for e in busy if begin <= e.start <= end] for begin, end in spans]
    return [
        scale * (min(e.start for e in after) - max(e.end for e in before))
        for before, after in pairwise(works)
    ]


def gaps_of(cases: list[Case], scale: float) -> list[float]:
    """The gaps of workflow with one job."""
    runs = [
        run for case in cases if (case.strategy, case.jobs) == ("workflow", 1) for run in case.runs
    ]
    return [gap for run in runs for gap in step_gaps(run.intervals(), scale)]


def admitted_gaps(folder: Path) -> list[float]:
    """The same gaps if each lease is a Slurm job."""
    admitted = replace(spec(LONG, STEP_SCALE), options={"qpu_by": "gres"})
    return gaps_of(compare(folder, admitted, ["workflow"], [1], lambda *_: None), STEP_SCALE)


def warm_up(folder: Path) -> None:
    """Import libraries first, so that no case pays for their first use."""
    compare(folder, spec(SHORT, 0.001), ["static"], [1], lambda *_: None)


def experiment(quantum: float) -> tuple[Table, list[float], list[float]]:
    """Every case on one box, and the times from step to step with both kinds of lease."""
    scale = SCALES[quantum]
    with put_up(), tempfile.TemporaryDirectory() as name:
        warm_up(Path(name) / "warm-up")
        admitted = admitted_gaps(Path(name) / "admitted")
        cases = compare(Path(name), spec(quantum, scale), STRATEGIES, JOBS, lambda *_: None)
        figures = {(case.strategy, case.jobs, quantum): case.panel().metrics for case in cases}
        table = {key: Row(each.total, each.nodes_held) for key, each in figures.items()}
        return table, gaps_of(cases, scale), admitted


def show(table: Table) -> None:
    """Both tables, side by side."""
    print(f"{'':34}{'wall s':>22}{'node-seconds':>24}")
    print(f"{'quantum s':>9}  {'jobs':>4}  {'strategy':<17}{'published':>12}{'ours':>10}", end="")
    print(f"{'published':>14}{'ours':>10}")
    for (strategy, jobs, quantum), row in table.items():
        wall, usage = PUBLISHED.get((strategy, jobs, quantum), (None, None))
        theirs = [f"{each:.0f}" if each else "–" for each in (wall, usage)]
        print(f"{quantum:9g}  {jobs:4}  {strategy:<17}{theirs[0]:>12}{row.wall:10.0f}", end="")
        print(f"{theirs[1]:>14}{row.usage:10.0f}")


def claims_of(table: Table, quantum: float) -> list[Claim]:
    """How elastic performs, and that Slurm's own overheads are small enough to judge it."""
    static, workflow = table["static", 1, quantum], table["workflow", 1, quantum]
    one, two = table["elastic", 1, quantum], table["elastic", 2, quantum]
    tag, alone = f"q = {quantum:g} s", ROUNDS * (CLASSICAL + quantum)
    claims = [
        at_most(f"{tag}: static, wall over its closed form, part", static.wall / alone - 1, 0.02),
        at_most(f"{tag}: elastic, 1 job, wall / static's", one.wall / static.wall, 1.03),
        at_most(f"{tag}: elastic, 1 job, node-s / workflow's", one.usage / workflow.usage, 0.6),
    ]
    if quantum:
        loop = quantum + ROUNDS * (quantum + CLASSICAL)
        return [*claims, at_most(f"{tag}: elastic, 2 jobs / closed loop", two.wall / loop, 1.05)]
    ratio = two.wall / static.wall
    return [*claims, at_most(f"{tag}: elastic, 2 jobs / one static job", ratio, 1.05)]


def main() -> None:
    """Measure, print the table, and last the claims as one line of JSON."""
    load, began = os.getloadavg()[0], time.perf_counter()
    table: Table = {}
    gaps: list[float] = []
    admitted: list[float] = []
    with ProcessPoolExecutor(len(SCALES), get_context("spawn")) as side_by_side:
        for found in side_by_side.map(experiment, SCALES):
            table |= found[0]
            gaps += found[1]
            admitted += found[2]
    took = time.perf_counter() - began
    scales = ", ".join(f"{scale:g} for q = {quantum:g} s" for quantum, scale in SCALES.items())
    print(f"clock × {scales}; took {took:.0f} s, the machine's load was {load:.1f}\n")
    show(table)
    claims = [claim for quantum in SCALES for claim in claims_of(table, quantum)]
    steps = "workflow, step to step, median s"
    claims.append(at_most(steps, median(gaps), 0.3))
    claims.append(at_most(f"{steps}, QPU by Slurm's GRES", median(admitted), 0.3))
    conclude("slurm_strategies", claims)


if __name__ == "__main__":
    main()
