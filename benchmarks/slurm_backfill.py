"""A real slurmctld's backfill scheduler beside the twin's, on the same small workload.

Slurm runs in a box, with a slurmd for each node. Debian's slurm-wlm-emulator (22.05.8) would
pretend the nodes, but cannot run: its slurmctld insists on front ends, and the library that it
shares with Debian's other Slurm packages was built without them and refuses to read their names.

The twin is told when each job could start and how long it ran, so that what differs is the schedule
alone. Slurm reserves nodes for every job that waits, EASY for the first one.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from claims import at_least, at_most, conclude

from qtide import box
from qtide.backends.models.batch_queue import BatchQueue
from qtide.backends.models.trace import Array, Trace

NODES, JOBS, LIMIT = 6, 30, 600.0
WAVE = 10
"""Seconds after which the second half of the jobs comes."""


@dataclass(frozen=True)
class Ran:
    """A job as Slurm ran it, in seconds of the day."""

    nodes: int
    limit: float
    eligible: float
    start: float
    end: float


def ask(*words: str) -> str:
    """The output of a command of Slurm."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def submit(folder: Path) -> list[int]:
    """Jobs of seconds, with limits of minutes; those that are long ask for more."""
    drawn = random.Random(1)
    numbers = []
    for place in range(JOBS):
        if place == JOBS // 2:
            time.sleep(WAVE)
        nodes, seconds = drawn.choice([1, 1, 2, 3, 4, NODES]), drawn.randint(3, 12)
        terms = (f"--nodes={nodes}", f"--time={1 + seconds // 3}", f"--chdir={folder}")
        word = ask("sbatch", "--parsable", "--output=/dev/null", *terms, f"--wrap=sleep {seconds}")
        numbers.append(int(word.split(";")[0]))
    return numbers


def ran(number: int) -> Ran:
    """What Slurm says of a job; an error if it has not ended well."""
    text = ask("scontrol", "show", "job", str(number))
    found = dict(re.findall(r"(\w+)=(\S+)", text))
    assert found["JobState"] == "COMPLETED", f"job {number} is {found['JobState']}"
    times = [datetime.fromisoformat(found[f"{name}Time"]) for name in ("Eligible", "Start", "End")]
    hours, minutes, seconds = map(int, found["TimeLimit"].split(":"))
    limit = 3600.0 * hours + 60 * minutes + seconds
    return Ran(int(found["NumNodes"].split("-")[0]), limit, *(each.timestamp() for each in times))


def by_slurm() -> list[Ran]:
    """The workload in a box."""
    folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
    try:
        os.environ |= box.env(box.up(folder, nodes=NODES).folder)
        numbers = submit(folder)
        until = time.monotonic() + LIMIT
        while ask("squeue", "--noheader").strip():
            if time.monotonic() > until:
                raise TimeoutError(f"Slurm has not run {JOBS} jobs within {LIMIT:g} s")
            time.sleep(1)
        return [ran(number) for number in numbers]
    finally:
        box.down(folder)


def by_twin(jobs: list[Ran], first: float, *, backfill: bool) -> list[float]:
    """When the twin starts the same jobs."""
    starts = np.zeros(len(jobs))

    def started(rows: Array) -> None:
        starts[rows[:, 0].astype(int)] = rows[:, 1]

    trace = Trace.of((j.eligible - first, j.nodes, j.end - j.start, j.limit, 0) for j in jobs)
    BatchQueue(NODES, [trace], started, backfill=backfill).advance()
    return [float(each) for each in starts]


def main() -> None:
    """Compare waits and ends."""
    jobs = by_slurm()
    first = min(job.eligible for job in jobs)
    theirs = [job.start - first for job in jobs]
    easy, fifo = by_twin(jobs, first, backfill=True), by_twin(jobs, first, backfill=False)
    print("when each job started, s")
    print(f"{'job':>4}{'nodes':>7}{'ran':>6}{'limit':>7}{'slurm':>8}{'EASY':>8}{'FIFO':>8}")
    for number, job in enumerate(jobs):
        print(
            f"{number:4}{job.nodes:7}{job.end - job.start:6.0f}{job.limit:7.0f}"
            f"{theirs[number]:8.0f}{easy[number]:8.0f}{fifo[number]:8.0f}"
        )
    eligible = np.array([job.eligible - first for job in jobs])
    waits = {
        name: float(np.mean(np.array(starts) - eligible))
        for name, starts in (("slurm", theirs), ("easy", easy), ("fifo", fifo))
    }
    runs = [job.end - job.start for job in jobs]
    ends = [max(map(sum, zip(starts, runs, strict=True))) for starts in (theirs, easy)]
    print("\nmean wait, s: " + ", ".join(f"{name} {wait:.1f}" for name, wait in waits.items()))
    conclude(
        "slurm_backfill",
        [
            at_most(
                "mean wait, twin from Slurm, %", 100 * abs(waits["easy"] / waits["slurm"] - 1), 20
            ),
            at_most("last end, twin from Slurm, %", 100 * abs(ends[1] / ends[0] - 1), 10),
            at_least("FIFO's mean wait by Slurm's", waits["fifo"] / waits["slurm"], 1.0),
        ],
    )


if __name__ == "__main__":
    main()
