"""What jobs used gets into Slurm's records once, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.payloads.payload import Encoded
from qtide.service import records
from qtide.service.job_records import JobRecords, admitted
from qtide.service.records import Draft
from qtide.service.store import FileStore, Store
from qtide.service.task import Caller, Ending, TaskState
from tests.service.device.test_queue import task


class Records:
    """Slurm's accounting, as its commands show it."""

    def __init__(self) -> None:
        self.fields: dict[int, tuple[str, str]] = {}
        """The end and the comment of each job."""
        self.storage = "accounting_storage/slurmdbd"
        self.writes = 0
        self.fail_after: int | None = None

    async def output(self, *words: str, limit: float = 0.0) -> str:
        if words[0] == "scontrol":
            return f"AccountingStorageType   = {self.storage}\n"
        if words[0] == "sacctmgr":
            return self._write(*words)
        wanted = next(each for each in words if each.startswith("--jobs="))[7:].split(",")
        known = {str(job): each for job, each in self.fields.items()}
        return "".join(f"{job}|{'|'.join(known[job])}\n" for job in wanted if job in known)

    def _write(self, *words: str) -> str:
        if self.fail_after == self.writes:
            raise SlurmFailed("the accounting database is away")
        self.writes += 1
        job = int(next(each for each in words if each.startswith("jobid="))[6:])
        self.fields[job] = (self.fields[job][0], words[-1].partition("=")[2].lower())
        return " Modified jobs...\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = FileStore(tmp_path / "store.sqlite")
    yield made
    made.close()


def end(store: Store, id: str, job: int, used: float, *, ended: bool = True) -> None:  # noqa: A002 - as tasks have it
    """A task of a job, in the store."""
    one = task(id)
    one.caller = Caller("ada", "", job)

    async def main() -> None:
        await store.write(records.insert(one, Draft(Encoded("burst", b""), "")))
        if ended:
            await store.write(records.finish(one, Ending(TaskState.DONE, 100.0, used)))

    asyncio.run(main())


def look(store: Store, slurm: Records) -> None:
    asyncio.run(JobRecords(store, cast("Slurm", cast("Any", slurm)), "AdminComment").look())


def admit(store: Store, *jobs: int) -> None:
    for job in jobs:
        asyncio.run(store.write(admitted(job, 5, "ada", 0.0)))


def test_a_record_is_written_once_the_job_and_its_tasks_have_ended(store: Store) -> None:
    slurm = Records()
    admit(store, 7)
    end(store, "one", 7, 1.25)
    slurm.fields[7] = ("Unknown", "")
    look(store, slurm)
    assert slurm.writes == 0, "the job still runs"
    slurm.fields[7] = ("1000", "")
    end(store, "two", 7, 0.5, ended=False)
    look(store, slurm)
    assert slurm.writes == 0, "a task of it still waits"
    asyncio.run(store.write(lambda db: db.execute("UPDATE tasks SET state = 'done', used = 0.5")))
    for _ in range(3):
        look(store, slurm)
    assert slurm.fields[7] == ("1000", "qtide: tasks=2 qpu_seconds=1.000")
    assert slurm.writes == 1


def test_after_a_failure_every_record_is_written_and_none_twice(store: Store) -> None:
    slurm = Records()
    admit(store, 1, 2, 3)
    for job in (1, 2, 3):
        end(store, f"of {job}", job, float(job))
        slurm.fields[job] = ("1000", "")
    slurm.fail_after = 2
    look(store, slurm)
    slurm.fail_after = None
    look(store, slurm)
    look(store, slurm)
    assert [each[1] for each in slurm.fields.values()] == [
        f"qtide: tasks=1 qpu_seconds={job}.000" for job in (1, 2, 3)
    ]
    assert slurm.writes == 3


def test_words_of_others_and_jobs_without_tasks_are_left_alone(store: Store) -> None:
    slurm = Records()
    admit(store, 1, 2)
    end(store, "one", 1, 1.0)
    slurm.fields = {1: ("1000", 'JS1:{"cpu": 1}'), 2: ("1000", "")}
    look(store, slurm)
    look(store, slurm)
    assert slurm.fields == {1: ("1000", 'JS1:{"cpu": 1}'), 2: ("1000", "")}
    assert slurm.writes == 0


def test_a_slurm_without_accounting_is_told_nothing(store: Store) -> None:
    slurm = Records()
    slurm.storage = "accounting_storage/none"
    admit(store, 1)
    end(store, "one", 1, 1.0)
    look(store, slurm)
    assert slurm.writes == 0
