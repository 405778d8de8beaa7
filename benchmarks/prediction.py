"""Predictions of runs that nobody has seen, on the local cluster and on a real Slurm.

For each of four programs, the twin knows a static run of a single job on two nodes and a workflow
run on three, with one quantum time. It predicts other strategies, one to three jobs, two to four
nodes and other quantum times; then each of these is run. The tasks mostly wait, as tasks that read
and write do, so that they do not compete for the cores of a small machine. Local runs are warmed
up, as by `qtide compare`; on the box, nodes start anew for each allocation.
Run it on a quiet machine, for 15 minutes: python benchmarks/prediction.py. With --folder, it keeps
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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import shapes
from claims import at_least, conclude

from qtide import box
from qtide.core.ledger import Interval
from qtide.runs.comparison import Case, compare, read_cases
from qtide.runs.earlier import is_done
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.prediction import Prediction, PredictionCase, expected_ledgers, predict

QUANTUM = (0.4, 1.2, 3.0)
"""Seconds of a payload; the runs to learn from have the one in the middle."""
KNOWN = {"static": 2, "workflow": 3}
"""The runs to learn from: strategies and nodes."""
MOST = 4
"""Nodes of the box."""
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


def spec(name: str, place: str, seconds: float, nodes: int) -> Spec:
    """Build the description of a run of a program."""
    cluster = f"local:{nodes}" if place == "local" else "slurm"
    words = [str(seconds)]
    return Spec(f"{shapes.__file__}:{name}", words, cluster=cluster, nodes=nodes, qpu="burst")


def run(folder: Path, one: Spec, strategy: str, jobs: int) -> Case:
    """Run jobs at once, unless an earlier call has done so."""
    for case in read_cases(folder):
        if len(case.runs) == jobs and all(map(is_done, case.runs)):
            return case
    shutil.rmtree(folder, ignore_errors=True)
    warm_up = one.cluster.startswith("local")
    return compare(folder, one, [strategy], [jobs], lambda *_: None, warm_up=warm_up)[0]


def ledger(case: Case) -> list[Interval]:
    """Return what a case of one job recorded."""
    return [span for span in case.runs[0].intervals() if not span.open_ended]


def examine(place: str, number: int, folder: Path) -> Iterator[Seen]:
    """Calibrate on each program, then predict and run `number` cases."""
    known = {}
    run(folder / "first", spec(shapes.trio.name, place, QUANTUM[0], MOST), "static", 1)
    for each in shapes.PROGRAMS:
        name = each.name
        known[name] = [
            ledger(run(folder / name / known_as, spec(name, place, QUANTUM[1], n), known_as, 1))
            for known_as, n in KNOWN.items()
        ]
    names = strategy_names()
    for n in range(number):
        name, strategy = shapes.PROGRAMS[n % len(shapes.PROGRAMS)].name, names[n % len(names)]
        chance = random.Random(f"{place} {n}")
        jobs, nodes, seconds = chance.choice((1, 2, 3)), chance.choice((2, 3, 4)), QUANTUM[n % 3]
        site = nodes * jobs if place == "local" else MOST
        case = PredictionCase(strategy, jobs, nodes, site, jobs, seconds)
        found = predict(known[name], case)
        one = spec(name, place, seconds, nodes)
        if place == "local":
            one = replace(one, cluster=f"local:{site}")
        panel = run(folder / f"case-{n}", one, strategy, jobs).panel()
        metrics = panel.metrics
        played = [span for spans in expected_ledgers(known[name], case) for span in spans]
        sums = [seconds_by_kind(each) for each in (panel.intervals, played)]
        yield Seen(f"{place} {name}", found, metrics.total, metrics.nodes_held, *sums)


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
    seen: list[Seen] = []
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        for place in options.place or ("local", "box"):
            with cluster(place):
                for each in examine(place, options.cases, (options.folder or Path(folder)) / place):
                    show(each)
                    if options.explain:
                        explain(each)
                    seen.append(each)
                    if time.monotonic() > end:
                        break
    near, covered = sum(each.near for each in seen), sum(each.covered for each in seen)
    conclude(
        "prediction",
        [
            at_least("unseen runs, wall and node-seconds within 5 %, share", near / len(seen), 0.9),
            at_least("unseen runs within their own intervals, share", covered / len(seen), 0.9),
        ],
    )


if __name__ == "__main__":
    main()
