"""Predictions of runs that nobody has seen, on the local cluster and on a real Slurm.

For each of four programs, the twin knows a static run of a single job on two nodes and a workflow
run on three, with one quantum time. It predicts other strategies, one to three jobs, two to four
nodes and other quantum times; then each of these is run. The tasks mostly wait, as tasks that read
and write do, so that they do not compete for the cores of a small machine. As by `qtide compare`,
a warm-up comes first: jobs know their program, and on the local cluster all nodes are warm. On the
box, nodes start anew for each allocation.
Run it on a quiet machine, for 12 minutes: python benchmarks/prediction.py. With --folder, it keeps
the runs there, and a further call goes on where the last one ended; --minutes ends a call earlier.
With --explain, it prints beside each case what the nodes and the phases did, in seconds, measured
and predicted.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import shapes
from claims import at_least, conclude

from qtide import box
from qtide.core.ledger import Interval
from qtide.runs.comparison import Case, play_cases
from qtide.runs.earlier import is_done
from qtide.runs.folder import WARM_UP, RunFolder, created
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.prediction import Prediction, PredictionCase, expected_ledgers, predict

QUANTUM = (0.4, 1.2, 3.0)
"""Seconds of a payload; the runs to learn from have the one in the middle."""
KNOWN = (("static", 1, 2), ("workflow", 1, 3))
"""The runs to learn from: strategies, jobs and nodes."""
MOST = 4
"""Nodes of the box, and the most of a job."""
LOCAL = 12
"""Nodes of the local cluster: enough for three jobs."""
NEAR = 0.05


@dataclass(frozen=True)
class Seen:
    """A prediction and what then happened."""

    name: str
    found: Prediction
    wall: float
    node_seconds: float
    measured: Mapping[str, float]
    played: Mapping[str, float]

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of both figures."""
        wall, nodes = self.found.wall, self.found.node_seconds
        return wall.expected / self.wall - 1, nodes.expected / self.node_seconds - 1

    @property
    def near(self) -> bool:
        """Whether both figures are within 5 %."""
        return max(map(abs, self.errors)) <= NEAR

    @property
    def covered(self) -> bool:
        """Whether both figures are within their intervals."""
        wall, nodes = self.found.wall, self.found.node_seconds
        inside = wall.low <= self.wall <= wall.high
        return inside and nodes.low <= self.node_seconds <= nodes.high


def planned(place: str, number: int) -> PredictionCase:
    """Draw the case of a number."""
    chance, names = random.Random(f"{place} {number}"), strategy_names()
    jobs, nodes, seconds = chance.choice((1, 2, 3)), chance.choice((2, 3, 4)), QUANTUM[number % 3]
    site = nodes * jobs if place == "local" else MOST
    name = names[number % len(names)]
    keeps = True if place == "local" else None
    return PredictionCase(name, jobs, nodes, site, jobs, seconds, taught=True, keeps_agents=keeps)


def create(folder: Path, place: str, program: str, case: PredictionCase) -> Case:
    """Create the runs of a case, or find them if an earlier call has finished them."""
    spec = spec_of(place, program, case)
    found = tuple(RunFolder(folder / f"job-{n}") for n in range(1, case.jobs + 1))
    if not all(run.path.exists() and is_done(run) for run in found):
        shutil.rmtree(folder, ignore_errors=True)
        found = tuple(created(folder, run.name, spec) for run in found)
    return Case(case.strategy, case.jobs, found)


def spec_of(place: str, program: str, case: PredictionCase) -> Spec:
    """Describe a run of a case."""
    cluster = f"local:{LOCAL}" if place == "local" else "slurm"
    return Spec(
        f"{shapes.__file__}:{program}",
        [str(case.quantum)],
        strategy=case.strategy,
        cluster=cluster,
        nodes=case.nodes,
        qpu="burst",
        vqpus=case.jobs,
    )


class TimeIsUp(Exception):  # noqa: N818 - not an error
    """The time that the call may take is over."""


def examine(place: str, number: int, folder: Path, end: float) -> Iterator[Seen]:
    """Run each program: what the twin knows of it, then its share of `number` cases; predict."""

    def ended(_: Case) -> None:
        if time.monotonic() > end:
            raise TimeIsUp

    for index, program in enumerate(each.name for each in shapes.PROGRAMS):
        mine = {n: planned(place, n) for n in range(number) if n % len(shapes.PROGRAMS) == index}
        learn = [PredictionCase(*each, vqpus=1, quantum=QUANTUM[1]) for each in KNOWN]
        known = [create(folder / program / c.strategy, place, program, c) for c in learn]
        cases = {n: create(folder / f"case-{n}", place, program, c) for n, c in mine.items()}
        missing = [case for case in (*known, *cases.values()) if not is_over(case)]
        if missing and time.monotonic() < end:
            shutil.rmtree(folder / program / WARM_UP, ignore_errors=True)
            warm_up = replace(missing[0].runs[0].spec, nodes=MOST)
            with suppress(TimeIsUp):
                play_cases(folder / program, missing, lambda *_: None, ended, warm_up=warm_up)
        if not all(map(is_over, known)):
            return
        ledgers = [list(case.panel().intervals) for case in known]
        for n, case in cases.items():
            if is_over(case):
                yield seen(f"{place} {program}", ledgers, mine[n], case)


def is_over(case: Case) -> bool:
    """Whether all runs of a case are done."""
    return all(map(is_done, case.runs))


def seen(name: str, known: list[list[Interval]], case: PredictionCase, runs: Case) -> Seen:
    """Predict a case, and read what happened."""
    found = predict(known, case)
    panel = runs.panel()
    played = [span for spans in expected_ledgers(known, case) for span in spans]
    sums = [seconds_by_kind(each) for each in (panel.intervals, played)]
    return Seen(name, found, panel.metrics.total, panel.metrics.nodes_held, *sums)


def seconds_by_kind(spans: Iterable[Interval]) -> dict[str, float]:
    """Seconds of all spans of a kind, such as nodes held or phases by label."""
    found: dict[str, float] = defaultdict(float)
    for span in spans:
        lane = span.lane.partition("/")[0]
        name = f"{span.what} {lane} {span.label}" if span.what == "phase" else f"{span.what} {lane}"
        found[name] += span.seconds
    return found


def show(seen: Seen) -> None:
    """Print one case."""
    case, found = seen.found.case, seen.found
    wall, nodes = seen.errors
    print(
        f"{seen.name:12} {case.strategy:10} {case.jobs} jobs {case.nodes} nodes q {case.quantum:g}"
        f"  wall {seen.wall:6.2f} twin {found.wall.expected:6.2f} ({found.wall.low:.2f}–"
        f"{found.wall.high:.2f}) {wall:+6.1%}  node-s {seen.node_seconds:7.2f} twin "
        f"{found.node_seconds.expected:7.2f} ({found.node_seconds.low:.2f}–"
        f"{found.node_seconds.high:.2f}) {nodes:+6.1%}"
        f"{'' if seen.near else '  far'}{'' if seen.covered else '  outside'}",
        flush=True,
    )


def explain(seen: Seen) -> None:
    """Print what nodes and phases did, measured and predicted."""
    for name in sorted({*seen.measured, *seen.played}):
        real, twin = seen.measured.get(name, 0.0), seen.played.get(name, 0.0)
        if max(real, twin) > 0.01:
            print(f"    {name:32} {real:8.3f} twin {twin:8.3f} {twin - real:+8.3f}")


@contextmanager
def cluster(place: str) -> Iterator[None]:
    """Put up a Slurm if the place is one."""
    if place == "local":
        yield
        return
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        os.environ |= box.env(box.up(folder, nodes=MOST, qpus=3).folder)
        yield
    finally:
        box.down(folder)


def main() -> None:
    """Predict, measure, print every case and the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", nargs="*", help="local, box; by default both")
    parser.add_argument("--cases", type=int, default=20, help="cases at each place")
    parser.add_argument("--explain", action="store_true", help="print what the errors come from")
    parser.add_argument("--folder", type=Path, help="keep the runs here, and go on with those kept")
    parser.add_argument("--minutes", type=float, default=inf, help="begin no case after that")
    options = parser.parse_args()
    found: list[Seen] = []
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        for place in options.place or ("local", "box"):
            with cluster(place):
                kept = (options.folder or Path(folder)) / place
                for each in examine(place, options.cases, kept, end):
                    show(each)
                    if options.explain:
                        explain(each)
                    found.append(each)
    if not found:
        parser.error("no case was finished; give it more --minutes")
    near, covered = sum(each.near for each in found), sum(each.covered for each in found)
    conclude(
        "prediction",
        [
            at_least("unseen runs, wall and node-seconds within 5 %", near / len(found), 0.9),
            at_least("unseen runs within their own intervals", covered / len(found), 0.9),
        ],
    )


if __name__ == "__main__":
    main()
