"""Predictions of runs that nobody has seen, on the local cluster and on a real Slurm.

For each of four programs, the twin knows one static and one workflow run of a single job on three
nodes, with one quantum time. It predicts other strategies, one to three jobs, two to four nodes and
other quantum times; then each of these is run. The tasks mostly wait, as tasks that read and write
do, so that they do not compete for the cores of a small machine.
Run it on a quiet machine, for ten minutes: python benchmarks/prediction.py. With --explain, it
prints beside each case what the nodes and the phases did, in seconds, measured and predicted.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from claims import at_least, conclude

from qtide import box, classical, program, quantum, task
from qtide.backends.payloads.payload import Burst
from qtide.core.ledger import Interval
from qtide.runs.comparison import Case, compare
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.prediction import Prediction, PredictionCase, expected_ledgers, predict

QUANTUM = (0.4, 1.2, 3.0)
"""Seconds of a payload; the runs to learn from have the one in the middle."""
NODES, MOST = 3, 4
NEAR = 0.05


def read(seconds: float) -> int:
    """Wait as for a disk, and compute for a tenth of the time."""
    time.sleep(0.9 * seconds)
    until, found = time.process_time() + 0.1 * seconds, 0
    while time.process_time() < until:
        found += 1
    return 0


@program
async def trio(seconds: float) -> None:
    """Three unequal tasks, a payload, a merge."""
    for _ in range(2):
        await classical(task(read, 1.5), task(read, 0.8), task(read, 0.3))
        await quantum(Burst(seconds))
        await task(read, 0.6)


@program
async def chain(seconds: float) -> None:
    """One task and one payload in turn."""
    for _ in range(3):
        await task(read, 0.9)
        await quantum(Burst(seconds))


@program
async def wide(seconds: float) -> None:
    """Six equal tasks, then a payload."""
    for _ in range(2):
        await classical(*(task(read, 0.7) for _ in range(6)))
        await quantum(Burst(seconds))


@program
async def late(seconds: float) -> None:
    """A payload first, then two classical phases."""
    for _ in range(2):
        await quantum(Burst(seconds))
        await classical(task(read, 0.5), task(read, 0.5))
        await classical(task(read, 1.0), task(read, 0.4), task(read, 0.4))


PROGRAMS = (trio, chain, wide, late)


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
    return Spec(f"{__file__}:{name}", words, cluster=cluster, nodes=nodes, qpu="burst")


def run(folder: Path, one: Spec, strategy: str, jobs: int) -> Case:
    """Run jobs at once."""
    return compare(folder, one, [strategy], [jobs], lambda *_: None)[0]


def ledger(case: Case) -> list[Interval]:
    """Return what a case of one job recorded."""
    return [span for span in case.runs[0].intervals() if not span.open_ended]


def examine(place: str, number: int, folder: Path) -> Iterator[Seen]:
    """Calibrate on each program, then predict and run `number` cases."""
    chance, known = random.Random(place), {}
    run(folder / "warm-up", spec(trio.name, place, QUANTUM[0], NODES), "static", 1)
    for each in PROGRAMS:
        one = spec(each.name, place, QUANTUM[1], NODES)
        known[each.name] = [
            ledger(run(folder / each.name / strategy, one, strategy, 1))
            for strategy in ("static", "workflow")
        ]
    names = strategy_names()
    for n in range(number):
        name, strategy = PROGRAMS[n % len(PROGRAMS)].name, names[n % len(names)]
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
    options = parser.parse_args()
    seen: list[Seen] = []
    for place in options.place or ("local", "box"):
        with cluster(place), tempfile.TemporaryDirectory() as folder:
            for each in examine(place, options.cases, Path(folder)):
                show(each)
                if options.explain:
                    explain(each)
                seen.append(each)
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
