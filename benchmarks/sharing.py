"""Sharing one QPU through the service: the experiment at a small scale, against its bounds.

Bounds of the same run: no schedule ends before the QPU has done all its work (N·Q), nor before one
job alone would (T1); and N jobs gain at most min(N, N*) over exclusive use, N* being the jobs that
fit around the QPU without a queue. The payloads are bursts of 37 ms: 16 replicas take an eighth of
two cores.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from claims import Claim, at_least, at_most, conclude

from qtide.experiments.sharing.experiment import Measuring, measure
from qtide.experiments.sharing.results import ResultRow
from qtide.experiments.sharing.sharing_plan import SharingPlan

PLAN = SharingPlan(
    replicas=(1, 4, 16),  # 16 saturate the QPU with every alpha
    repetitions=1,
    sets="sharing-bursts",
    device="burst",
    clustered=(2, 8, 18),  # 35 payloads per job: of few, the first and the last count too much
    shots=110,  # 15 ms and 0.2 ms per shot: 37 ms
)
SATURATED = 1.5
"""Times the jobs that fit without a queue: from there on, the QPU should never be idle."""


def main() -> None:
    """Measure, show the rows, and conclude."""
    with tempfile.TemporaryDirectory(prefix="qtide-sharing-") as folder:
        rows = measure(PLAN, Path(folder), tell)
    print(f"{'α':>3} {'N':>3} {'N*':>5} {'total s':>8} {'bound':>7} {'ratio':>6}", end=" ")
    print(f"{'occupancy':>9} {'gain':>6} {'most':>6}")
    for row in rows:
        print(
            f"{row.alpha:3g} {row.replicas:3} {row.loop.knee:5.2f} {row.total.mean:8.3f}"
            f" {bound(row):7.3f} {row.total.mean / bound(row):6.3f} {row.occupancy.mean:9.3f}"
            f" {row.gain:6.2f} {most(row):6.2f}"
        )
    conclude("sharing", claims(rows))


def tell(progress: Measuring) -> None:
    """What is measured now."""
    point = progress.point
    words = f"alpha {point.alpha:g}, replicas {point.replicas}"
    print(f"{progress.number} of {progress.of}: {words}", file=sys.stderr)


def bound(row: ResultRow) -> float:
    """The seconds that no schedule can beat."""
    return max(row.quantum.mean, row.single)


def most(row: ResultRow) -> float:
    """The most that sharing can gain."""
    return min(row.replicas, row.loop.knee)


def claims(rows: list[ResultRow]) -> list[Claim]:
    """The worst of all rows."""
    full = [row for row in rows if row.replicas >= SATURATED * row.loop.knee]
    return [
        at_least("occupancy at saturation, worst", min(row.occupancy.mean for row in full), 0.97),
        at_most("total time, of max(N·Q, T1), worst", worst(rows), 1.05),
        at_least(
            "speed-up over exclusive use, of min(N, N*), worst",
            min(row.gain / most(row) for row in rows),
            0.9,
        ),
    ]


def worst(rows: list[ResultRow]) -> float:
    """The greatest ratio of a total to its bound."""
    return max(row.total.mean / bound(row) for row in rows)


if __name__ == "__main__":
    main()
