"""Quotas of tasks, QPU seconds and bytes on disk, per user and account.

A task reserves the seconds it is expected to take. When it ends, it is charged the seconds it took
and the rest is released. Counts are not stored: they follow from the tasks in the store.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from qtide.core.errors import QtideError
from qtide.core.world.world import World
from qtide.service import queries, records
from qtide.service.configuration import DAY, Quota, Quotas
from qtide.service.limits import LeakyBucket, Limits, StorageFull
from qtide.service.policies.policy import ShareOwner, Shares
from qtide.service.store import Action, Database, Store
from qtide.service.task import Caller, Forbidden, ServiceTask

MOST_KNOWN = 100_000
Number = TypeVar("Number", int, float)
SubjectKey = tuple[str, str]
"""The kind, user or account, and the name."""


class QuotaExceeded(QtideError):  # noqa: N818 - named after what happened
    """A user or an account has reached its maximum number of tasks."""


class NeverFits(Forbidden):
    """A task takes longer than its user's or account's quota of a whole day."""


@dataclass(frozen=True)
class Subject:
    """A user or an account, with its limits."""

    kind: str
    name: str
    quota: Quota

    @cached_property
    def key(self) -> SubjectKey:
        """The key of its counts."""
        return self.kind, self.name


@dataclass(frozen=True)
class Remaining:
    """What a user or an account uses of its quota now, and what is left."""

    subject: Subject
    tasks: int
    """Tasks waiting or running."""
    seconds: float
    """QPU seconds used today or reserved."""

    @property
    def used_up(self) -> bool:
        """Whether no QPU second of today is left."""
        return _rest(self.subject.quota.qpu_seconds, self.seconds) == 0.0

    def as_dict(self) -> dict[str, Any]:
        """Convert it for clients; None means no limit."""
        quota = self.subject.quota
        return {
            "of": self.subject.kind,
            "name": self.subject.name,
            "device": None,
            "period": "day",
            "tasks": self.tasks,
            "tasks_left": _rest(quota.tasks, self.tasks),
            "qpu_seconds": self.seconds,
            "qpu_seconds_left": _rest(quota.qpu_seconds, self.seconds),
        }


class QuotaMeter:
    """Counts what each user and account has reserved and used today."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._day = 0
        self._tasks: Counter[SubjectKey] = Counter()
        self._seconds: defaultdict[SubjectKey, float] = defaultdict(float)
        self._held: dict[str, tuple[Caller, float]] = {}
        self._known: dict[tuple[str, str], tuple[Subject, ...]] = {}

    def accept(self, caller: Caller) -> None:
        """Count one more task, or refuse it."""
        for subject in self._subjects(caller):
            most = subject.quota.tasks
            if most is not None and self._tasks[subject.key] >= most:
                raise QuotaExceeded(
                    f"the {subject.kind} {subject.name} has {most} tasks waiting or running, "
                    "as many as allowed; wait until one has ended"
                )
        self.count(caller, 1)

    def check_fits(self, caller: Caller, seconds: float) -> None:
        """Refuse a task that no day's quota can hold."""
        for subject in self._subjects(caller):
            most = subject.quota.qpu_seconds
            if most is not None and seconds > most:
                raise NeverFits(
                    f"the task should take {seconds:g} s of the device, but the {subject.kind} "
                    f"{subject.name} may use {most:g} s per day; split it, or ask the operator"
                )

    def most_seconds(self, caller: Caller) -> float:
        """Maximum seconds that a caller may use in a day."""
        limits = (subject.quota.qpu_seconds for subject in self._subjects(caller))
        return min((each for each in limits if each is not None), default=math.inf)

    def left(self, caller: Caller, now: float) -> list[Remaining]:
        """What is left for the caller's user and account."""
        self._roll_over(now)
        return [
            Remaining(each, self._tasks[each.key], self._seconds[each.key])
            for each in self._subjects(caller)
        ]

    def adopt(self, quotas: Quotas) -> None:
        """Switch to other quotas; keep the counts."""
        self._quotas = quotas
        self._known.clear()

    def count(self, caller: Caller, tasks: int) -> None:
        """Change a caller's number of tasks by `tasks`."""
        for subject in self._subjects(caller):
            self._tasks[subject.key] += tasks

    def blocked(self, caller: Caller, seconds: float, now: float) -> SubjectKey | None:
        """The user or account whose limit leaves no room for `seconds` more today, if any."""
        self._roll_over(now)
        for subject in self._subjects(caller):
            most, used = subject.quota.qpu_seconds, self._seconds[subject.key]
            if most is not None and used and used + seconds > most:
                return subject.key
        return None

    @property
    def at_rest(self) -> bool:
        """Whether no tasks are counted and nothing is reserved."""
        return not self._held and not any(self._tasks.values())

    def keys(self, caller: Caller) -> list[SubjectKey]:
        """Keys of the caller's user and account."""
        return [subject.key for subject in self._subjects(caller)]

    def blocked_task(self, task: ServiceTask, now: float) -> SubjectKey | None:
        """The same for a task; the session that it belongs to has reserved some of its seconds."""
        more = task.seconds - self._lent(task)
        return self.blocked(task.caller, more, now) if more > 0 else None

    def hold(self, task: ServiceTask, now: float) -> None:
        """Reserve the seconds that a task should take, first those of its session."""
        self._roll_over(now)
        if lent := self._lent(task):
            self._held[task.session or ""] = task.caller, self._reserved(task.session) - lent
        self._held[task.id] = task.caller, task.seconds
        self._add(task.caller, task.seconds - lent)

    def charge(self, task: ServiceTask, now: float) -> None:
        """Replace what a task reserved by what it used; 0 releases all of it."""
        self._roll_over(now)
        held = self._reserved(task.id)
        self._held.pop(task.id, None)
        self._add(task.caller, task.used - held)

    def _lent(self, task: ServiceTask) -> float:
        """The seconds of a task that its session has reserved."""
        return min(task.seconds, self._reserved(task.session))

    def _reserved(self, id: str | None) -> float:  # noqa: A002 - the name users know
        return self._held[id][1] if id in self._held else 0.0

    def note(self, caller: Caller, seconds: float, now: float) -> None:
        """Count seconds used earlier today."""
        self._roll_over(now)
        self._add(caller, seconds)

    def next_day(self, now: float) -> float:
        """The time at which the next day's counts begin."""
        return (now // DAY + 1) * DAY

    def _add(self, caller: Caller, seconds: float) -> None:
        for subject in self._subjects(caller):
            self._seconds[subject.key] = max(0.0, self._seconds[subject.key] + seconds)

    def _roll_over(self, now: float) -> None:
        """Reset the counts on a new day, to what is still reserved."""
        if self._day != int(now // DAY):
            self._day = int(now // DAY)
            self._seconds.clear()
            for caller, seconds in self._held.values():
                self._add(caller, seconds)

    def _subjects(self, caller: Caller) -> tuple[Subject, ...]:
        """The caller's user and, if it has one, account; cached."""
        names = caller.user, caller.account
        if names not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[names] = tuple(self._looked_up(caller))
        return self._known[names]

    def _looked_up(self, caller: Caller) -> Iterator[Subject]:
        limits = self._quotas
        yield Subject("user", caller.user, limits.users.get(caller.user, limits.user))
        if caller.account:
            account = limits.accounts.get(caller.account, limits.account)
            yield Subject("account", caller.account, account)


def _rest(most: Number | None, used: Number) -> Number | None:
    return None if most is None else max(most - used, type(most)(0))


def remember(store: Store, shares: Shares, meter: QuotaMeter, half_life: float, now: float) -> None:
    """Restore shares and quotas from recent usage and recent jobs in the store."""
    today = meter.next_day(now) - DAY
    # merge usage within a hundredth of a half-life, but at most within an hour
    at_once = min(half_life / 100, DAY / 24)
    for row in store.read(queries.used_since(min(today, now - 10 * half_life), at_once)):
        caller = Caller(row["user"], row["account"])
        shares.charge(ShareOwner.of(caller), row["used"], row["ended"])
        if row["ended"] >= today:
            meter.note(caller, row["used"], now)
    for row in store.read(queries.jobs_since(now - DAY)):
        shares.note_job(row["user"], row["job"], row["began"])


BYTES = "length(payload) + coalesce(length(request), 0) + coalesce(length(answer), 0)"
BY_USER = f"SELECT user, sum({BYTES}) AS bytes FROM tasks WHERE payload IS NOT NULL GROUP BY user"
SMALL_TASK = 2**16
"""Maximum bytes of a small task, which may use half of the reserve."""
WRITTEN = 2
"""Copies of a new task on disk: one in the database's log, one in the database."""
PART = 4
"""A user gets at most this fraction (1 / PART) of the free disk space."""
MB = 2**20
BURST = 16 * MB
"""Bytes that a user may store in a burst."""


class Storage:
    """Counts and limits what each user stores."""

    def __init__(self, world: World, store: Store, limits: Limits, folder: Path) -> None:
        self._bucket = LeakyBucket(world, limits.stored_bytes_per_second_per_user, BURST)
        self._store = store
        self._limits = limits
        self.folder = folder
        self._arriving = 0
        """Bytes accepted that may not be on disk yet."""
        self._bytes: Counter[str] = Counter()

    def adopt(self, limits: Limits) -> None:
        """Switch to other limits; keep the counts."""
        self._limits = limits
        self._bucket.adopt(limits.stored_bytes_per_second_per_user, BURST)

    def remember(self) -> None:
        """Initialize the counts from what is on disk."""
        rows = self._store.read(lambda db: db.execute(BY_USER).fetchall())
        self._bytes = Counter({row["user"]: row["bytes"] for row in rows})

    async def keep_pace(self, user: str, size: int) -> None:
        """Wait if a user stores faster than its fair part of the disk's speed."""
        self._bucket.charge(user, size)
        await self._bucket.wait(user)

    @contextmanager
    def reserving(self, user: str, size: int) -> Iterator[None]:
        """Count a task during its acceptance, or refuse it; uncount it if the block fails."""
        self._check(user, size)
        self._bytes[user] += size
        self._arriving += size
        try:
            yield
        except BaseException:
            self._bytes[user] -= size
            raise
        finally:
            self._arriving -= size

    def answered(self, task: ServiceTask) -> None:
        """Count the answer to a task."""
        if task.answer is not None:
            self._bytes[task.caller.user] += len(task.answer.data)
            self._bucket.charge(task.caller.user, len(task.answer.data))

    async def purge(self, before: float) -> int:
        """Delete one batch of what is too old; return its number of tasks."""
        purged: int = await self._delete(
            "ended < ? AND payload IS NOT NULL LIMIT ?",
            (before, records.PURGE_AT_ONCE),
            records.purge(before),
        )
        return purged

    async def forget(self, id: str) -> None:  # noqa: A002 - the column's name
        """Delete a task's payload and answer."""
        await self._delete("id = ? AND payload IS NOT NULL", (id,), records.forget(id))

    def why_full(self, user: str) -> str | None:
        """Why a task of this user may not run, as the end of a sentence, although it was accepted.

        Answers count only once they are there: those of many tasks could fill the disk. They may
        take as much as payloads may; on a disk that is short of space, whoever has stored little
        is not the cause, and keeps the tasks.
        """
        free, used, most = self._free(), self._bytes[user], 2 * self._limits.stored_bytes_per_user
        reserve = self._limits.disk_reserve
        if free is not None and free < reserve:
            most = min(most, max(reserve, (free + used) // PART))
        if used <= most:
            return None
        return (
            f"was not run, as its user has stored {used / MB:.1f} MB of at most {most / MB:.1f} "
            "MB; delete tasks (qtide cancel ID --forget), then submit it again"
        )

    def trouble(self) -> str | None:
        """Why nothing can be stored now; None if it can."""
        if self._store.fenced:
            return "the database does not answer, and another service may lead by now"
        free = self._free()
        if free is not None and free < self._limits.disk_reserve / 2:
            return f"the disk is full: {free // MB} MB are left in {self.folder}"
        return None

    def _check(self, user: str, size: int) -> None:
        free, used = self._free(), self._bytes[user]
        self.check_free(size)
        most = self._limits.stored_bytes_per_user
        if free is not None:
            most = min(most, (free + used) // PART)
        if used + size > most:
            raise StorageFull(
                f"the user {user} has stored {used / MB:.1f} MB of at most {most / MB:.1f} MB; "
                "delete tasks that you no longer need (qtide cancel ID --forget), or wait until "
                "old ones are purged"
            )

    def check_free(self, size: int) -> None:
        """Refuse what the disk has no room for.

        Half of the reserve is for small tasks, so that a few large ones lock nobody out; the other
        half is for the answers of accepted tasks.
        """
        free = self._free()
        if free is None:
            return
        reserve = self._limits.disk_reserve
        kept = reserve / 2 if size <= SMALL_TASK else reserve + WRITTEN * (size + self._arriving)
        if free < kept:
            raise StorageFull("the disk of the service is full; tell its operator")

    def _free(self) -> int | None:
        """Free bytes on the disk; None if there is no folder, as in a simulation."""
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    async def _delete(self, which: str, values: tuple[Any, ...], action: Action[Any]) -> Any:
        """Run a deletion, and subtract what it deletes from the counts."""
        find = f"SELECT user, {BYTES} AS bytes FROM tasks WHERE {which}"

        def counted(db: Database) -> tuple[list[Any], Any]:
            return db.execute(find, values).fetchall(), action(db)

        rows, result = await self._store.write(counted)
        for row in rows:
            self._bytes[row["user"]] -= row["bytes"]
        return result
