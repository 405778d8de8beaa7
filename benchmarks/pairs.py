"""Two drivers on one small Slurm, all pairs of strategies: each of them has to end.

Each pair has a box of its own, with three nodes and one QPU, and does not know of the other driver.
The QPU is admitted by GRES and by licence. For comparison, each strategy also runs alone: "in turn"
is what the two would take one after the other.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from claims import at_most, conclude

from qtide import box
from qtide.strategies.strategy import strategy_names

ADMISSIONS = ("gres", "licence")
PROGRAM = ("synthetic", "published", "--quantum-s", "20", "--time-scale", "0.01")
NODES = 3


@dataclass(frozen=True)
class Meeting:
    """Strategies that run at the same time, one driver each."""

    strategies: tuple[str, ...]
    admission: str


@dataclass(frozen=True)
class Result:
    """How long each driver took; None for one that did not end, or failed."""

    meeting: Meeting
    seconds: tuple[float | None, ...]
    said: str = ""

    @property
    def ended(self) -> bool:
        """Whether all did."""
        return None not in self.seconds

    @property
    def last(self) -> float:
        """When the last one ended."""
        return max(each or 0.0 for each in self.seconds)


def meetings() -> list[Meeting]:
    """Every strategy alone, then every pair, each with itself too."""
    names = strategy_names()
    groups = [(name,) for name in names] + list(itertools.combinations_with_replacement(names, 2))
    return [Meeting(group, admission) for group in groups for admission in ADMISSIONS]


def hold(meeting: Meeting, place: Path, limit: float) -> Result:
    """Start its drivers on a box, and wait for them."""
    folder = Path(tempfile.mkdtemp(dir=place))
    began = time.monotonic()
    drivers = [_driver(meeting, n, place, folder) for n in range(len(meeting.strategies))]
    ends: dict[int, float | None] = {}
    try:
        while len(ends) < len(drivers) and time.monotonic() - began < limit:
            for number, each in enumerate(drivers):
                if number not in ends and each.poll() is not None:
                    ends[number] = None if each.returncode else time.monotonic() - began
            time.sleep(0.05)
    finally:
        for each in drivers:
            each.terminate()
            each.wait()
    said = "\n".join(each.read_text() for each in sorted(folder.glob("*.log")))
    return Result(meeting, tuple(ends.get(number) for number in range(len(drivers))), said)


def _driver(meeting: Meeting, number: int, place: Path, folder: Path) -> subprocess.Popen[bytes]:
    site = ("--cluster", "slurm", "--qpu-by", meeting.admission)
    words = (*PROGRAM, *site, "--strategy", meeting.strategies[number], "--name", f"run{number}")
    with (folder / f"{number}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "qtide", "run", *words],
            env=os.environ | box.env(place / "box"),
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=folder,
        )


def hold_all(wanted: Sequence[Meeting], boxes: int, limit: float) -> list[Result]:
    """All meetings, on as many boxes at once."""
    with tempfile.TemporaryDirectory(prefix="qtide-pairs-") as root:
        places: SimpleQueue[Path] = SimpleQueue()
        up = [Path(root) / str(number) for number in range(boxes)]
        try:
            for place in up:
                place.mkdir()
                box.up(place / "box", nodes=NODES, qpus=1)
                places.put(place)
            with ThreadPoolExecutor(boxes) as pool:
                return list(pool.map(lambda each: _in_turn(each, places, limit), wanted))
        finally:
            for place in up:
                box.down(place / "box")


def _in_turn(meeting: Meeting, places: SimpleQueue[Path], limit: float) -> Result:
    place = places.get()
    try:
        return hold(meeting, place, limit)
    finally:
        places.put(place)


def rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """For people."""
    alone = {(r.meeting.strategies[0], r.meeting.admission): r.last for r in _of(results, 1)}
    yield ["one", "other", "QPU by", "one, s", "other, s", "in turn, s", "ended"]
    for each in _of(results, 2):
        names, admission = each.meeting.strategies, each.meeting.admission
        yield [
            *names,
            admission,
            *("–" if seconds is None else f"{seconds:.1f}" for seconds in each.seconds),
            f"{sum(alone[name, admission] for name in names):.1f}",
            "yes" if each.ended else "NO",
        ]


def _of(results: Sequence[Result], size: int) -> list[Result]:
    return [each for each in results if len(each.meeting.strategies) == size]


def main() -> None:
    """Hold all meetings, print the pairs, what those said that did not end, and the claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one pair")
    chosen = parser.parse_args()
    began = time.monotonic()
    results = hold_all(meetings(), chosen.boxes, chosen.limit)
    for line in rows(results):
        print("  ".join(f"{word:>10}" for word in line))
    failed = [each for each in results if not each.ended]
    for each in failed:
        print(f"\n{' and '.join(each.meeting.strategies)}, {each.meeting.admission}:\n{each.said}")
    pairs = len(_of(results, 2))
    print(f"\n{pairs} pairs on {chosen.boxes} boxes at once, {time.monotonic() - began:.0f} s")
    conclude("pairs", [at_most("pairs that did not end, or failed", len(failed), 0)])


if __name__ == "__main__":
    main()
