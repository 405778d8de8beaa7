"""The published tables of the clustering jobs, and the figure drawn from the same runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

from qtide import box
from qtide.core.ledger import Interval
from qtide.core.processes import die_with_parent
from qtide.experiments.reproduction.published import (
    LEONARDO,
    NODES,
    QLUSTER,
    TABLES,
    PublishedSite,
    figures,
    predict,
)
from qtide.experiments.reproduction.result import ItemResult, Statement, Value, Workplace
from qtide.experiments.reproduction.schedules import LONG, OURS, PUBLISHED, SHORT, shared_loop
from qtide.experiments.reproduction.strangers import OTHERS, Strangers
from qtide.runs.comparison import compare, read_cases
from qtide.runs.driver import GroupTerms
from qtide.runs.spec import Spec

JOBS = (1, 2)
APART = 10.0
"""Seconds of the experiment between two submissions; if both came at once, neither could grow."""
TERMS = GroupTerms(APART, own_qpus=True)
"""Each job has a QPU of its own: with one for both, no two jobs could be as fast as published."""
CLOCK = {LONG: 0.14, SHORT: 0.24}
"""Seconds here per second of the experiment on Qluster: slow, as Slurm's delays are not scaled."""
AMONG_OTHERS = {LONG: 0.085, SHORT: 0.11}
"""The same for Leonardo, whose own delays were short."""


WORDS = {LONG: "quantum phases of two minutes", SHORT: "short quantum phases"}


DOWN_LIMIT = 120.0


@contextmanager
def cluster(nodes: int = NODES) -> Iterator[tuple[str, str]]:
    """Put up a Slurm and yield the cluster's name with a note; without Slurm, use processes."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    with taken_down(folder):
        try:
            there = box.up(folder, nodes=nodes, qpus=max(JOBS)).folder
        except box.PackagesMissing:
            yield f"local:{NODES}", "Slurm is not installed: processes stand for nodes."
            return
        before = dict(os.environ)
        try:
            os.environ |= box.env(there)
            yield "slurm", "A real Slurm on one computer; tasks and payloads only wait."
        finally:
            os.environ.clear()
            os.environ |= before


@contextmanager
def taken_down(folder: Path) -> Iterator[None]:
    """Take the box in a folder down after the block, also if this process is killed in it."""
    code = (
        "import sys; from pathlib import Path; from shutil import rmtree; from qtide import box; "
        "place = Path(sys.argv[1]); sys.stdin.read(); "
        "box.down(place) if any(place.iterdir()) else rmtree(place)"
    )
    words = [sys.executable, "-c", code, str(folder)]
    keeper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        keeper.communicate(timeout=DOWN_LIMIT)  # its input ends with this process at the latest


@dataclass(frozen=True)
class ClusteringRuns:
    """The clustering jobs of one table: site, quantum time, folder, numbers of jobs, and clock."""

    site: PublishedSite
    quantum: float
    folder: Path
    jobs: tuple[int, ...]
    scale: float

    def spec(self, strategy: str, kind: str) -> Spec:
        """Describe the job as it is run here."""
        shape = self.folder / f"{strategy}.toml"
        shape.parent.mkdir(parents=True, exist_ok=True)
        shape.write_text(self.site.shape(strategy, self.quantum))
        return Spec("synthetic", [str(shape)], cluster=kind, time_scale=self.scale, nodes=NODES)

    @property
    def least(self) -> float:
        """Seconds that a job takes at least: it waits for nothing but its payloads."""
        job = self.site.job(OURS, self.quantum)
        calls = sum(step.quantum is not None for step in job.steps)
        return job.shortest + calls * self.site.delay(self.quantum)

    def side_by_side(self, repetitions: int) -> str:
        """Run each strategy on a Slurm of its own, all at once; return what they ran on."""
        spawn = get_context("spawn")
        with ProcessPoolExecutor(len(STRATEGIES), spawn, die_with_parent) as pool:
            lanes = [(name,) for name in STRATEGIES]
            return " ".join(set(pool.map(self.measure, lanes, repeat(repetitions))))

    def measure(
        self, strategies: Sequence[str], repetitions: int, others: Strangers | None = None
    ) -> str:
        """Run what is missing on a Slurm, perhaps among others' jobs; return what it ran on."""
        with cluster(NODES + (others.nodes if others else 0)) as (kind, note):
            for strategy in strategies:
                self._warm_up(strategy, kind)
            crowd = others if kind == "slurm" else None
            with crowd.jobs(self.scale) if crowd else nullcontext():
                for number in range(1, repetitions + 1):
                    for strategy in strategies:
                        self.run(strategy, number, kind)
        return f"{note} {crowd.note}" if crowd else note

    def _warm_up(self, strategy: str, kind: str) -> None:
        """Run a job of one round in a flash, so that later runs find the caches filled."""
        with tempfile.TemporaryDirectory(prefix="qtide-warm-up-") as name:
            site = replace(self.site, silhouettes=self.site.silhouettes[:1])
            short = replace(self, site=site, folder=Path(name), scale=FLASH)
            spec = short.spec(strategy, kind)
            compare(Path(name) / "run", spec, [strategy], [1], _silent)

    def run(self, strategy: str, number: int, kind: str) -> None:
        """Run a repetition, unless it is there; an unfinished one is run again."""
        where = self.folder / f"{number}" / strategy
        if where.exists():
            return
        part = where.with_name(f"{strategy}.part")
        rmtree(part, ignore_errors=True)
        spec = self.spec(strategy, kind)
        compare(part, spec, [strategy], self.jobs, _silent, terms=TERMS)
        part.rename(where)

    @property
    def clock(self) -> str:
        """Say how time was scaled, and what that made of Slurm's delays."""
        step = median(chain.from_iterable(self._waits("workflow")))
        own, delay = self._waits(OURS), self.site.site.delays.grant
        return (
            f"{'Each case ran once. ' if len(own) == 1 else ''}"
            f"One second of the experiment took {self.scale:g} s here. Only tasks and payloads are "
            "scaled; Slurm and the start of a node's agent are as fast as they are. So a step of a "
            f"workflow waited {step:.1f} s of the experiment for its nodes, and {delay:.1f} s on "
            f"{self.site.name.capitalize()}. {OURS} asks for nodes before a phase ends; all steps "
            f"of a job together waited {median(map(sum, own)):.1f} s for them. "
            "Node-seconds count the start of a node's agent with its real length."
        )

    def _waits(self, strategy: str) -> list[list[float]]:
        """Return how long each step of a single job waited for nodes, by repetition."""
        return [
            waits_for_nodes(case.runs[0].intervals())
            for folder in sorted(self.folder.glob(f"*/{strategy}"))
            for case in read_cases(folder)
            if case.jobs == 1
        ]

    def values(self, base: Path) -> Iterator[Value]:
        """Return the wall times and node-seconds of the table, cell by cell."""
        for jobs in self.jobs:
            for strategy in STRATEGIES:
                yield from self._cell(base, strategy, jobs)

    def _cell(self, base: Path, strategy: str, jobs: int) -> Iterator[Value]:
        row = next((row for row in self._rows() if row_is(row, strategy, jobs)), {})
        cases = [
            case
            for folder in sorted(self.folder.glob(f"*/{strategy}"))
            for case in read_cases(folder)
            if case.jobs == jobs
        ]
        here = [
            figures(strategy, [run.intervals() for run in case.runs], case.runs[0].spec.time_scale)
            for case in cases
        ]
        runs = tuple(str(run.path.relative_to(base)) for case in cases for run in case.runs)
        twin = predict(self.site, strategy, jobs, self.quantum, APART)
        what = f"{strategy}, {jobs} job{'s' if jobs > 1 else ''}"
        for key, name, unit in (("wall", "wall time", "s"), ("usage", "node-seconds", "node-s")):
            measured = tuple(getattr(each, key) for each in here)
            published = row.get(key), row.get(f"{key}_sd")
            yield Value(f"{what}: {name}", unit, measured, *published, getattr(twin, key), runs)

    def _rows(self) -> list[dict[str, Any]]:
        return [row for row in TABLES[self.site.name] if row["quantum_s"] == self.quantum]


STRATEGIES = (*PUBLISHED, OURS)
FLASH = 0.001
"""The clock of a warm-up."""


def row_is(row: dict[str, Any], strategy: str, jobs: int) -> bool:
    """Whether a published row is about a strategy and a number of jobs."""
    return (row["strategy"], row["jobs"]) == (strategy, jobs)


def waits_for_nodes(spans: Sequence[Interval]) -> list[float]:
    """Return how long each classical step waited: from the last work before it to its own first."""
    busy = sorted((each.start, each.end, each.lane) for each in spans if each.what == "busy")
    return [
        start - max(end for begun, end, _ in busy if begun < start)
        for phase in spans
        if phase.what == "phase"
        for start, lane in [min((b, lane) for b, _, lane in busy if b >= phase.start)]
        if lane.startswith("node/") and any(begun < start for begun, *_ in busy)
    ]


def qluster(place: Workplace, name: str, quantum: float) -> ItemResult:
    """Make a table of the clustering jobs on Qluster."""
    runs = ClusteringRuns(QLUSTER, quantum, place.folder / name, JOBS, CLOCK[quantum])
    note = runs.side_by_side(place.repetitions)
    values = tuple(runs.values(place.folder))
    return ItemResult(
        name,
        f"Clustering on Qluster, {WORDS[quantum]}",
        TABLES["tables"][name],
        values,
        advances=tuple(_advances(values, runs)),
        notes=(
            note,
            runs.clock,
            f"A payload takes {QLUSTER.site.qpu.offload:g} s more than its quantum time: its "
            "offload, fitted to the published runs of single jobs.",
            "Each job has a QPU of its own: two jobs that shared one could not be as fast as "
            "published.",
            "As published, workflow holds three nodes while it scores a clustering and is charged "
            "for one; its charge is shown. elastic was not published: it holds and counts one.",
        ),
    )


AT_BOUND = 1.05
"""Ratio to the time without any wait up to which a wall time cannot be beaten."""


def _advances(values: Sequence[Value], runs: ClusteringRuns) -> Iterator[Statement]:
    """Compare elastic with the best published strategy, where that leaves something to gain."""
    bound = runs.least
    for what, unit in (("wall time", "s"), ("node-seconds", "node-s")):
        for jobs in runs.jobs:
            number = f"{jobs} job{'s' if jobs > 1 else ''}"
            tail = f"{number}: {what}"
            mine = next(v for v in values if v.what == f"{OURS}, {tail}").ours or 0.0
            best = min(
                v.published or 0.0
                for v in values
                if v.what.endswith(tail) and v.published is not None and v.unit == unit
            )
            if unit == "s" and best <= AT_BOUND * bound:
                words = f"{number}: elastic's {what} is within 5 % of the least possible"
                yield Statement(f"{words}, {bound:,.0f} s", mine <= AT_BOUND * bound)
            else:
                words = f"{number}: elastic's {what} is below that of every published strategy"
                yield Statement(f"{words}, {best:,.0f} {unit}", mine < best)


def leonardo(place: Workplace, name: str, quantum: float) -> ItemResult:
    """Make a table of single clustering jobs on Leonardo, among other users' jobs."""
    runs = ClusteringRuns(LEONARDO, quantum, place.folder / name, (1,), AMONG_OTHERS[quantum])
    note = runs.measure(STRATEGIES, place.repetitions, OTHERS)
    values = tuple(runs.values(place.folder))
    return ItemResult(
        name,
        f"Clustering among strangers on Leonardo, {WORDS[quantum]}",
        TABLES["tables"][name],
        values,
        advances=tuple(_advances(values, runs)),
        notes=(
            note,
            runs.clock,
            f"A payload takes {LEONARDO.site.qpu.offload:g} s more than its quantum time, its "
            f"offload, and in the experiment without quantum time {LEONARDO.short_wait:g} s more "
            "for others' payloads before it. Both were fitted to these tables.",
        ),
    )


def characteristics(place: Workplace, name: str, _: float) -> ItemResult:
    """Put a number beside each characteristic of the strategies."""
    base = place.known("table-1")

    def of(strategy: str, jobs: int, what: str) -> float:
        key = f"{strategy}, {jobs} job{'s' if jobs > 1 else ''}: {what}"
        known = [each.ours for each in (base.values if base else ()) if each.what == key]
        twin = predict(QLUSTER, strategy, jobs, LONG, APART)
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
