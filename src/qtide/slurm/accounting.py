"""Slurm's own records of a run: what its companions held, to compare with the ledger."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from qtide.jobs.job import Job
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.mark import job_name, qpu_name
from qtide.slurm.queue import entries

RECORDS = ("sacct", "--allocations", "--duplicates", "--parsable2", "--noheader")
FIELDS = "--format=JobIDRaw,State,ElapsedRaw,NNodes,AllocNodes"

HISTORY = 30 * 86400.0
"""Seconds to look back if no start is given: the whole database need not be searched."""


@dataclass(frozen=True)
class Usage:
    """Node-seconds of a number of companions. Slurm counts whole seconds for each job."""

    node_seconds: float
    companions: int
    source: str


async def usage(slurm: Slurm, job: Job, since: float | None = None) -> Usage:
    """What a run's companions have held since a moment, including those that are running."""
    return await _usage(slurm, job_name(job), since)


async def qpu_usage(slurm: Slurm, job: Job, since: float | None = None) -> Usage:
    """The same for the jobs that held a QPU for it, each one node of the quantum partition."""
    return await _usage(slurm, qpu_name(job), since)


async def _usage(slurm: Slurm, name: str, since: float | None) -> Usage:
    begin = time.localtime(time.time() - HISTORY if since is None else since)
    start = f"--starttime={time.strftime('%Y-%m-%dT%H:%M:%S', begin)}"
    try:
        text = await slurm.output(*RECORDS, FIELDS, f"--name={name}", start)
    except SlurmFailed:
        return await _from_queue(slurm, name)
    held = list(parse_records(text))
    return Usage(sum(held), len(held), "sacct")


def parse_records(text: str) -> Iterator[float]:
    """The node-seconds of each job that had nodes."""
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == 5 and words[2].isdecimal() and words[4].isdecimal() and int(words[4]):
            yield float(int(words[2]) * int(words[4]))


async def _from_queue(slurm: Slurm, name: str) -> Usage:
    """Without accounting, the controller knows a job for MinJobAge seconds after its end."""
    found = await entries(slurm, f"--name={name}", "--states=all")
    held = [each for each in found if each.start is not None and each.state != "PENDING"]
    now = time.time()
    return Usage(sum(each.node_seconds(now) for each in held), len(held), "queue")
