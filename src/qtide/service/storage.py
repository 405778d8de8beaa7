"""Storage: how many bytes of payloads and answers each user has on disk, and whether more fit.

Nothing more is stored for it: at the start it follows from the rows of the tasks.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qtide.core.world.world import World
from qtide.service import records
from qtide.service.limits import Limits, Pace, StorageFull
from qtide.service.store import Action, Store
from qtide.service.task import ServiceTask

BYTES = "length(payload) + coalesce(length(request), 0) + coalesce(length(answer), 0)"
BY_USER = f"SELECT user, sum({BYTES}) AS bytes FROM tasks WHERE payload IS NOT NULL GROUP BY user"
PART = 4
"""No user gets more than one such part of the disk that is free."""
MB = 2**20
BURST = 16 * MB
"""Bytes that a user may store at once."""


class Storage:
    """What each user stores."""

    def __init__(self, world: World, store: Store, limits: Limits, folder: Path) -> None:
        self._pace = Pace(world, limits.stored_bytes_per_second_per_user, BURST)
        self._store = store
        self._limits = limits
        self._folder = folder
        self._bytes: Counter[str] = Counter()

    def adopt(self, limits: Limits) -> None:
        """Limit by other settings from now on; what is counted stays."""
        self._limits = limits
        self._pace.adopt(limits.stored_bytes_per_second_per_user, BURST)

    def remember(self) -> None:
        """Count what is on disk."""
        rows = self._store.read(lambda db: db.execute(BY_USER).fetchall())
        self._bytes = Counter({row["user"]: row["bytes"] for row in rows})

    async def keep_pace(self, user: str, size: int) -> None:
        """Wait if a user stores faster than the disk can write for one of many."""
        self._pace.charge(user, size)
        await self._pace.wait(user)

    @contextmanager
    def reserving(self, user: str, size: int) -> Iterator[None]:
        """Count a task that is being accepted, or refuse it; if it is not accepted, it is free."""
        self._check(user, size)
        self._bytes[user] += size
        try:
            yield
        except BaseException:
            self._bytes[user] -= size
            raise

    def answered(self, task: ServiceTask) -> None:
        """Count the answer to a task."""
        if task.answer is not None:
            self._bytes[task.caller.user] += len(task.answer.data)
            self._pace.charge(task.caller.user, len(task.answer.data))

    async def purge(self, before: float) -> int:
        """Delete what is too old, as much as is deleted at once; the number of tasks."""
        purged: int = await self._delete(
            "ended < ? AND payload IS NOT NULL LIMIT ?",
            (before, records.PURGE_AT_ONCE),
            records.purge(before),
        )
        return purged

    async def forget(self, id: str) -> None:  # noqa: A002 - the column's name
        """Delete what a task stored."""
        await self._delete("id = ? AND payload IS NOT NULL", (id,), records.forget(id))

    def trouble(self) -> str | None:
        """Why nothing can be stored now."""
        free = self._free()
        if free is not None and free < self._limits.disk_reserve:
            return f"the disk is full: {free // MB} MB are left in {self._folder}"
        return None

    def _check(self, user: str, size: int) -> None:
        free, used = self._free(), self._bytes[user]
        if free is not None and free < self._limits.disk_reserve:
            raise StorageFull("the disk of the service is full; tell its operator")
        most = self._limits.stored_bytes_per_user
        if free is not None:
            most = min(most, (free + used) // PART)
        if used + size > most:
            raise StorageFull(
                f"the user {user} has stored {used / MB:.1f} MB of at most {most / MB:.1f} MB; "
                "delete tasks that you no longer need, or wait until old ones are purged"
            )

    def _free(self) -> int | None:
        """The free bytes of the disk; None if there is no folder, as in a simulation."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    async def _delete(self, which: str, values: tuple[Any, ...], action: Action[Any]) -> Any:
        """Delete, and count out what was deleted."""
        find = f"SELECT user, {BYTES} AS bytes FROM tasks WHERE {which}"

        def counted(db: sqlite3.Connection) -> tuple[list[sqlite3.Row], Any]:
            return db.execute(find, values).fetchall(), action(db)

        rows, result = await self._store.write(counted)
        for row in rows:
            self._bytes[row["user"]] -= row["bytes"]
        return result
