"""Slurm's own records of jobs: what a run's companions held, and a field for what others count."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.mark import job_name, qpu_name
from qtide.backends.clusters.slurm.queue import QueueEntry, entries
from qtide.core.job import JobContext
from qtide.core.metrics import Metrics

T = TypeVar("T")

RECORDS = ("sacct", "--allocations", "--duplicates", "--parsable2", "--noheader")
FIELDS = "--format=JobIDRaw,End,ElapsedRaw,AllocNodes,AllocTRES"
UNITS = {"cpu": "cores", "gres/gpu": "gpus", "billing": "billing"}
"""What Slurm calls the resources that it charges, and what the ledger calls them."""

LIMIT = 10.0
"""Seconds within which Slurm must answer."""
PATIENCE, PAUSE = 2.0, 0.25
"""Seconds to wait for the records of jobs that have just ended, and between two queries."""
HISTORY = 30 * 86400.0
"""Seconds to look back if no start is given, to avoid searching the whole database."""


@dataclass(frozen=True)
class Account:
    """Real node-seconds, QPU-seconds or those of another unit, by the ledger and by Slurm."""

    held: float
    charged: float
    usage: Usage
    missing: int = 0
    """Number of ended jobs whose end is not in Slurm's records yet."""

    def as_dict(self) -> dict[str, Any]:
        """The account as JSON-compatible values."""
        return {
            "held": self.held,
            "charged": self.charged,
            "difference": self.charged - self.held,
            "jobs": self.usage.companions,
            "missing": self.missing,
            "source": self.usage.source,
        }


async def accounts(
    job: JobContext, metrics: Metrics, scale: float, since: float, ended: Collection[int] = ()
) -> dict[str, Account]:
    """The accounts of a job's nodes and, if Slurm granted its leases, of the QPU.

    If tasks shared nodes, nodes differed, or the site has billing weights, those of cores, GPUs and
    billing as well, as far as Slurm has records of them.
    Waits briefly for the records of jobs that are known to have ended. Raises SlurmFailed if Slurm
    does not answer.
    """
    nodes, leases = await _answered(_complete(_slurm(), job, since, ended))
    missing = set(ended) - nodes.ended - leases.ended
    found = {"nodes": Account(metrics.nodes_held * scale, nodes.node_seconds, nodes, len(missing))}
    if leases.companions:
        held = metrics.slots_held * scale
        found["qpu"] = Account(held, leases.node_seconds, leases, len(missing))
    told = {"cores": metrics.divided, "gpus": metrics.divided, "billing": metrics.billing_held > 0}
    for unit, charged in nodes.others.items():
        if told[unit]:
            held = getattr(metrics, f"{unit}_held") * scale
            found[unit] = Account(held, charged, nodes, len(missing))
    return found


async def when_ended(jobs: Collection[int], since: float) -> dict[int, float]:
    """End times of jobs; raise SlurmFailed if Slurm does not answer."""
    return await _answered(ends(_slurm(), jobs, since))


async def _complete(
    slurm: Slurm, job: JobContext, since: float, ended: Collection[int]
) -> tuple[Usage, Usage]:
    """Slurm's records, once they are complete or patience is over."""
    last = time.monotonic() + PATIENCE
    while True:
        nodes, leases = await usage(slurm, job, since), await qpu_usage(slurm, job, since)
        if not set(ended) - nodes.ended - leases.ended or time.monotonic() > last:
            return nodes, leases
        await asyncio.sleep(PAUSE)


def _slurm() -> Slurm:
    slurm = Slurm()
    slurm.check()
    return slurm


async def _answered(question: Coroutine[Any, Any, T]) -> T:
    try:
        return await asyncio.wait_for(question, LIMIT)
    except TimeoutError:
        raise SlurmFailed(f"Slurm gave no answer within {LIMIT:g} s") from None


@dataclass(frozen=True)
class SacctRecord:
    """A job that had nodes; `end` is in seconds since 1970, None if not known (yet)."""

    job: int
    node_seconds: float
    end: float | None
    others: Mapping[str, float] = field(default_factory=dict)
    """Its seconds of cores, GPUs and billing, as far as they are recorded."""


@dataclass(frozen=True)
class Usage:
    """Total node-seconds of companions. Slurm counts whole seconds for each job."""

    node_seconds: float
    companions: int
    source: str
    ended: frozenset[int] = frozenset()
    """The jobs whose end is recorded."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Total seconds of cores, GPUs and billing."""


async def usage(slurm: Slurm, job: JobContext, since: float | None = None) -> Usage:
    """What a run's companions have held since `since`, including running ones."""
    return _sum(*await _records(slurm, [f"--name={job_name(job)}"], since))


async def qpu_usage(slurm: Slurm, job: JobContext, since: float | None = None) -> Usage:
    """The same for jobs that held a QPU for the run, each with one node of the QPU partition."""
    return _sum(*await _records(slurm, [f"--name={qpu_name(job)}"], since))


async def ends(slurm: Slurm, jobs: Collection[int], since: float | None = None) -> dict[int, float]:
    """End times of jobs in seconds since 1970, without running and unknown jobs."""
    found, _ = await _records(slurm, [f"--jobs={','.join(map(str, jobs))}"], since)
    return {each.job: each.end for each in found if each.end is not None}


def _sum(found: Sequence[SacctRecord], source: str) -> Usage:
    ended = frozenset(each.job for each in found if each.end is not None)
    others = sum((Counter(each.others) for each in found), Counter[str]())
    total = sum(each.node_seconds for each in found)
    return Usage(total, len(found), source, ended, dict(others))


async def _records(
    slurm: Slurm, which: Sequence[str], since: float | None
) -> tuple[list[SacctRecord], str]:
    """The records and their source."""
    begin = time.localtime(time.time() - HISTORY if since is None else since)
    start = f"--starttime={time.strftime('%Y-%m-%dT%H:%M:%S', begin)}"
    try:
        text = await slurm.output(*RECORDS, FIELDS, *which, start)
    except SlurmFailed:
        return await _from_queue(slurm, which), "queue"
    return list(parse_records(text)), "sacct"


def parse_records(text: str) -> Iterator[SacctRecord]:
    """Parse sacct's output; yield each job that had nodes."""
    for line in text.splitlines():
        words = line.split("|")
        if len(words) == 5 and all(words[n].isdecimal() for n in (0, 2, 3)) and int(words[3]):
            job, end, elapsed, nodes, resources = words
            over = float(end) if end.isdecimal() else None
            pairs = (each.partition("=")[::2] for each in resources.split(","))
            others = {
                UNITS[name]: float(value) * int(elapsed)
                for name, value in pairs
                if name in UNITS and value.replace(".", "", 1).isdecimal()
            }
            yield SacctRecord(int(job), float(int(elapsed) * int(nodes)), over, others)


async def _from_queue(slurm: Slurm, which: Sequence[str]) -> list[SacctRecord]:
    """Records without accounting; the controller keeps ended jobs for MinJobAge seconds."""
    found = await entries(slurm, *which, "--states=all")
    held = [each for each in found if each.start is not None and each.state != "PENDING"]
    return [_record(each, time.time()) for each in held]


def _record(entry: QueueEntry, now: float) -> SacctRecord:
    return SacctRecord(entry.job, entry.node_seconds(now), None if entry.holds else entry.end)


STORAGE = re.compile(r"^AccountingStorageType\s*=\s*(\S+)", re.MULTILINE)
AT_ONCE = 200
"""Jobs to ask for in one command."""


@dataclass(frozen=True)
class RecordedField:
    """Whether a job has ended, and what the field of its record holds."""

    ended: bool
    text: str


class RecordField:
    """A field of jobs' records that an operator of Slurm may write, such as AdminComment.

    `scontrol` changes a job only while it lives; what it wrote gets into the record when the job
    ends. Afterwards only `sacctmgr` can; it puts everything in lower case and loses quotes.
    """

    def __init__(self, slurm: Slurm, name: str) -> None:
        self._slurm = slurm
        self._name = name

    async def kept(self) -> bool:
        """Whether this Slurm keeps records of jobs."""
        found = STORAGE.search(await self._slurm.output("scontrol", "show", "config"))
        return found is not None and found[1].endswith("slurmdbd")

    async def read(self, jobs: Iterable[int]) -> dict[int, RecordedField]:
        """The field in the last record of each of these jobs that has one."""
        found: dict[int, RecordedField] = {}
        wanted = [str(job) for job in jobs]
        for at in range(0, len(wanted), AT_ONCE):
            text = await self._slurm.output(
                *("sacct", "--allusers", "--allocations", "--noheader", "--parsable2"),
                f"--jobs={','.join(wanted[at : at + AT_ONCE])}",
                f"--format=JobIDRaw,End,{self._name}",
            )
            for line in text.splitlines():
                job, end, said = line.split("|", 2)
                found[int(job)] = RecordedField(end.isdecimal(), said)
        return found

    async def write(self, job: int, text: str) -> None:
        """Write the field of a job that has ended."""
        words = ("modify", "job", "where", f"jobid={job}", "set", f"{self._name}={text}")
        await self._slurm.output("sacctmgr", "--immediate", "--quiet", *words)
