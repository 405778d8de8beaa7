"""The job's own record in Slurm's accounting: how many tasks and QPU seconds the job used.

The figures follow from the tasks in the store, and what Slurm has is read back before a job counts
as told. So a crash at any moment leaves a record to be written, never one written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qtide.backends.clusters.slurm.accounting import RecordedField, RecordField
from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.service.store import Database, Store

log = logging.getLogger(__name__)

LOOK = 5.0
"""Seconds between two looks at jobs that have ended."""
AT_ONCE = 50
"""Maximum number of records to write at a look."""
PREFIX = "qtide: "
ADMIT = (
    "INSERT INTO job_records (job, start, user, admitted) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (job, start) DO NOTHING"
)
UNTOLD = """
    SELECT r.job, r.user, r.since,
      coalesce(sum(CASE WHEN t.state IN ('queued', 'running') THEN 1 ELSE 0 END), 0) AS live,
      coalesce(sum(CASE WHEN t.used > 0 THEN 1 ELSE 0 END), 0) AS tasks,
      coalesce(sum(t.used), 0.0) AS seconds
    FROM (SELECT job, user, min(admitted) AS since FROM job_records WHERE told IS NULL
      GROUP BY job, user) AS r
    LEFT JOIN tasks t ON t.job = r.job AND t.user = r.user AND t.submitted >= r.since
    GROUP BY r.job, r.user, r.since ORDER BY r.since"""
"""The jobs whose records are not written yet, with what their tasks have used so far."""
TOLD = "UPDATE job_records SET told = ? WHERE job = ? AND user = ? AND told IS NULL"


@dataclass(frozen=True)
class JobUsage:
    """What a job has used so far; a job that was requeued is one job."""

    job: int
    user: str
    since: float
    live: int
    """Tasks that wait or run, also after the job's end."""
    tasks: int
    seconds: float

    def __str__(self) -> str:
        return f"{PREFIX}tasks={self.tasks} qpu_seconds={self.seconds:.3f}"


def admitted(job: int, start: int, user: str, now: float) -> Any:
    """Note that a job was admitted, and so has a record to be written at its end."""
    return lambda store: store.execute(ADMIT, (job, start, user, now))


def untold(store: Database) -> list[JobUsage]:
    """The jobs whose records are not written yet, oldest first."""
    return [JobUsage(*tuple(row)) for row in store.execute(UNTOLD)]


class JobRecords:
    """Writes what jobs used into Slurm's accounting, once they and their tasks have ended."""

    def __init__(self, store: Store, slurm: Slurm, field: str) -> None:
        self._store = store
        self._field = RecordField(slurm, field)
        self._failed = False

    async def look(self) -> None:
        """Write the records of jobs that have ended."""
        usages = [each for each in await self._store.look(untold) if not each.live]
        if not usages:
            return
        try:
            await self._tell(usages)
        except SlurmFailed as error:
            if not self._failed:
                log.warning("Slurm was not told what jobs used", extra={"why": str(error)})
            self._failed = True
        else:
            self._failed = False

    async def _tell(self, usages: list[JobUsage]) -> None:
        if not await self._field.kept():
            await self._settle(usages, "Slurm keeps no records")
            return
        rest = await self._unwritten(usages)
        for each in rest[:AT_ONCE]:
            await self._field.write(each.job, str(each))
        await self._unwritten(rest[:AT_ONCE])

    async def _unwritten(self, usages: list[JobUsage]) -> list[JobUsage]:
        """Settle the jobs whose records are as they should be; return the ended ones to be told."""
        records = await self._field.read(each.job for each in usages)
        ended = [each for each in usages if each.job in records and records[each.job].ended]
        await self._settle(each for each in ended if _right(each, records[each.job]))
        rest = [each for each in ended if not _right(each, records[each.job])]
        # what others wrote stays: sacctmgr could not keep its case and its quotes
        taken = [each for each in rest if _is_taken(records[each.job])]
        for each in taken:
            log.warning("the record of a job has other words", extra={"job": each.job})
        await self._settle(taken, "its field has other words")
        return [each for each in rest if each not in taken]

    async def _settle(self, usages: Iterable[JobUsage], why: str | None = None) -> None:
        """Note that jobs are told, or why they are not."""
        rows = [(why or str(each), each.job, each.user) for each in usages]
        if rows:
            await self._store.write(lambda db: db.executemany(TOLD, rows))


def _right(usage: JobUsage, record: RecordedField) -> bool:
    """Whether a record says what it should; a job without tasks needs no words."""
    return usage.tasks == 0 or record.text == str(usage)


def _is_taken(record: RecordedField) -> bool:
    """Whether the field has words of others."""
    return bool(record.text) and not record.text.startswith(PREFIX)
