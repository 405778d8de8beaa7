"""The published tables of the clustering jobs, and the figure drawn from the same runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from qtide import box
from qtide.core.metrics import measure
from qtide.experiments.reproduction.published import CALIBRATIONS, TABLES, predict, uncharged
from qtide.experiments.reproduction.result import ItemResult, Statement, Value, Workplace
from qtide.experiments.reproduction.schedules import LONG, OURS, PUBLISHED, SHORT, shared_loop
from qtide.runs.comparison import Case, compare, read_cases
from qtide.runs.spec import Spec

NODES, JOBS = 3, (1, 2)
APART = 5.0
"""Seconds of the experiment between two submissions; if both came at once, neither could grow."""
SCALES = {True: {LONG: 0.045, SHORT: 0.08}, False: {LONG: 0.1, SHORT: 0.2}}
"""Seconds here per second of the experiment, quick and full.

Slurm itself is not scaled: with faster clocks, its delays weigh too much for the published numbers.
"""


@contextmanager
def cluster() -> Iterator[tuple[str, str]]:
    """Put up a Slurm and yield the cluster's name with a note; without Slurm, use processes."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
        there = box.up(folder, nodes=NODES, qpus=max(JOBS)).folder
    except box.PackagesMissing:
        yield f"local:{NODES}", "Slurm is not installed: processes stand for nodes."
        return
    try:
        os.environ |= box.env(there)
        yield "slurm", "A real Slurm on one computer; its own delays are not scaled."
    finally:
        box.down(folder)


def qluster(place: Workplace, name: str, quantum: float) -> ItemResult:
    """Make a table of the clustering jobs on Qluster."""
    scale = SCALES[place.quick][quantum]
    runs = place.folder / name
    with cluster() as (kind, note):
        for number in range(1, place.repetitions + 1):
            for strategy in (*PUBLISHED, OURS):
                where = runs / f"{number}" / strategy
                if not where.exists():
                    spec = _clustering(strategy, quantum, kind, scale)
                    unfinished = where.with_name(f"{strategy}.part")
                    rmtree(unfinished, ignore_errors=True)
                    compare(unfinished, replace(spec, time_scale=0.001), [strategy], [1], _silent)
                    rmtree(unfinished)
                    compare(unfinished, spec, [strategy], JOBS, _silent, apart=APART)
                    unfinished.rename(where)
    values = [
        value
        for jobs in JOBS
        for strategy in (*PUBLISHED, OURS)
        for value in _measured(place, runs, strategy, jobs, quantum)
    ]
    return ItemResult(
        name,
        f"Clustering on Qluster, quantum phases of {quantum:g} s",
        TABLES["tables"][name],
        tuple(values),
        advances=tuple(_advances(values, quantum)),
        notes=(
            note,
            f"One second of the experiment took {scale:g} s; tasks and payloads only wait.",
            "As published, workflow holds three nodes while it scores a clustering and is charged "
            "for one; its charge is shown. elastic was not published: it holds and counts one.",
        ),
    )


def _clustering(strategy: str, quantum: float, kind: str, scale: float) -> Spec:
    shape = "published-workflow" if strategy == "workflow" else "published"
    words = [shape, "--quantum-s", f"{quantum:g}"]
    return Spec("synthetic", words, cluster=kind, time_scale=scale, nodes=NODES)


def _measured(
    place: Workplace, runs: Path, strategy: str, jobs: int, quantum: float
) -> Iterator[Value]:
    """Return the wall time and the node-seconds of one cell of the table."""
    cases = [
        case
        for folder in sorted(runs.glob(f"*/{strategy}"))
        for case in read_cases(folder)
        if case.jobs == jobs
    ]
    row: dict[str, Any] = next(
        (
            row
            for row in TABLES["qluster"]
            if (row["strategy"], row["jobs"], row["quantum_s"]) == (strategy, jobs, quantum)
        ),
        {},
    )
    twin = predict(CALIBRATIONS["qluster"], strategy, jobs, quantum)
    folders = tuple(str(run.path.relative_to(place.folder)) for case in cases for run in case.runs)
    what = f"{strategy}, {jobs} job{'s' if jobs > 1 else ''}"
    walls = tuple(case.panel().metrics.total for case in cases)
    charged = tuple(_charged(case) for case in cases)
    published = row.get("wall"), row.get("wall_sd")
    yield Value(f"{what}: wall time", "s", walls, *published, twin.wall, folders)
    published = row.get("usage"), row.get("usage_sd")
    yield Value(f"{what}: node-seconds", "node-s", charged, *published, twin.usage, folders)


def _charged(case: Case) -> float:
    return sum(
        measure(spans).nodes_held - uncharged(spans)
        for run in case.runs
        for spans in [run.intervals()]
    )


AT_BOUND = 1.05
"""Ratio to the time without any wait up to which a wall time cannot be beaten."""


def _advances(values: Sequence[Value], quantum: float) -> Iterator[Statement]:
    """Compare elastic with the best published strategy, where that leaves something to gain."""
    bound = 4 * (77.3 + quantum + 52.0)
    for what, unit in (("wall time", "s"), ("node-seconds", "node-s")):
        for jobs in JOBS:
            tail = f"{jobs} job{'s' if jobs > 1 else ''}: {what}"
            mine = next(v for v in values if v.what == f"{OURS}, {tail}").ours or 0.0
            best = min(
                v.published or 0.0
                for v in values
                if v.what.endswith(tail) and v.published is not None and v.unit == unit
            )
            if unit == "s" and best <= AT_BOUND * bound:
                words = f"{tail}: elastic is within 5 % of the least possible, {bound:,.0f} s"
                yield Statement(words, mine <= AT_BOUND * bound)
            else:
                words = f"{tail}: elastic takes less than every published strategy ({best:,.0f})"
                yield Statement(words, mine < best)


def leonardo(_: Workplace, name: str, quantum: float) -> ItemResult:
    """Make a table of single clustering jobs on Leonardo by the twin alone."""
    site = CALIBRATIONS["leonardo"]
    values = []
    for row in TABLES["leonardo"]:
        if row["quantum_s"] != quantum:
            continue
        twin = predict(site, row["strategy"], 1, quantum)
        for key, unit, found in (("wall", "s", twin.wall), ("usage", "node-s", twin.usage)):
            what = f"{row['strategy']}: {'wall time' if unit == 's' else 'node-seconds'}"
            published = row[key], row[f"{key}_sd"]
            values.append(Value(what, unit, (), *published, found))
    return ItemResult(
        name,
        f"Clustering among strangers on Leonardo, quantum phases of {quantum:g} s",
        TABLES["tables"][name],
        tuple(values),
        notes=(
            "Nothing is measured here: the twin's model of Leonardo was fitted to these numbers.",
        ),
    )


def characteristics(place: Workplace, name: str, _: float) -> ItemResult:
    """Put a number beside each characteristic of the strategies."""
    base = place.known("table-1")

    def of(strategy: str, jobs: int, what: str) -> float:
        key = f"{strategy}, {jobs} job{'s' if jobs > 1 else ''}: {what}"
        known = [each.ours for each in (base.values if base else ()) if each.what == key]
        twin = predict(CALIBRATIONS["qluster"], strategy, jobs, LONG)
        return known[0] if known and known[0] else twin.wall if what == "wall time" else twin.usage

    def share(strategy: str, jobs: int, what: str) -> float:
        return 100 * of(strategy, jobs, what) / of("static", jobs, what)

    names = ("malleable", "workflow", OURS)
    rows = [
        *((f"{s}, overhead on one job", share(s, 1, "wall time") - 100) for s in names),
        *((f"{s}, node-seconds saved, one job", 100 - share(s, 1, "node-seconds")) for s in names),
        *((f"{s}, node-seconds saved, two jobs", 100 - share(s, 2, "node-seconds")) for s in names),
    ]
    found = dict(rows)
    saved = "node-seconds saved, one job"
    waits = shared_loop(4).wait
    values = [Value(what, "% of static's", (value,)) for what, value in rows]
    values.append(Value("vQPUs, four jobs: queue time of a payload of 10 s", "s", (), twin=waits))
    return ItemResult(
        name,
        "Characteristics of the strategies",
        "Three ways to share a QPU, table 5",
        tuple(values),
        (
            Statement(
                "reconfiguration costs a malleable job little", found[f"malleable, {SMALL}"] < 10
            ),
            Statement("malleability saves moderately", 20 < found[f"malleable, {saved}"] < 60),
            Statement(
                "workflows save more than malleability",
                found[f"workflow, {saved}"] > found[f"malleable, {saved}"],
            ),
            Statement("the queue time of vQPUs is small", waits < 10),
        ),
        (
            Statement(
                "elastic saves more node-seconds than either",
                found[f"{OURS}, {saved}"] > found[f"workflow, {saved}"],
            ),
        ),
        (f"From {'table 1 as measured here' if base else 'the twin of Qluster'}.",),
        virtual=base is None,
    )


SMALL = "overhead on one job"


def allocation(place: Workplace, name: str, _: float) -> ItemResult:
    """Draw what two jobs hold over time, from the runs of table 1."""
    base = place.known("table-1")
    if base is None or base.missing:
        return ItemResult(
            name,
            "Nodes over time",
            ALLOCATION,
            missing="it needs the runs of table-1; make that first",
        )
    values = [each for each in base.values if "2 jobs: node-seconds" in each.what]
    walls = {
        v.what.partition(",")[0]: v.ours or 0.0 for v in base.values if "2 jobs: wall" in v.what
    }
    return ItemResult(
        name,
        "Nodes over time, two jobs at once",
        ALLOCATION,
        tuple(values),
        (
            Statement(
                "static runs one job after the other", walls["static"] > 1.6 * walls["malleable"]
            ),
            Statement("malleable jobs interleave best", walls["malleable"] < walls["workflow"]),
        ),
        (
            Statement(
                "elastic takes as long as malleable at most",
                walls[OURS] <= 1.03 * walls["malleable"],
            ),
        ),
        ("From the runs of table 1.",),
    )


ALLOCATION = "Three ways to share a QPU, figure 9; Rocco et al. 2025, figure 2"


def _silent(*_: object) -> None:
    """Report no progress."""
