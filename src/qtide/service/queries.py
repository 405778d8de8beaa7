"""Queries of the store: tasks by id, key or owner, their calibration sets and usage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from qtide.service.records import COLUMNS, task_of
from qtide.service.store import Database, Store
from qtide.service.task import (
    CalibrationSet,
    Caller,
    Conflict,
    NotFound,
    ServiceTask,
)

SHORTEST_ID, WHOLE_ID = 4, 36
"""Characters in the shortest accepted prefix of a task's id, and in a whole id."""


def count_live(store: Database) -> int:
    """Number of unfinished tasks."""
    words = "SELECT count(*) FROM tasks WHERE state IN ('queued', 'running')"
    count: int = store.execute(words).fetchone()[0]
    return count


def live(store: Database) -> list[ServiceTask]:
    """All unfinished tasks, in order of arrival."""
    rows = store.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE state IN ('queued', 'running') ORDER BY sequence"
    )
    return [task_of(row) for row in rows]


def find(id: str) -> Any:  # noqa: A002 - the column's name
    """Find the task with that id, or None."""

    def action(store: Database) -> ServiceTask | None:
        row = store.execute(f"SELECT {COLUMNS} FROM tasks WHERE id = ?", (id,)).fetchone()
        return task_of(row) if row else None

    return action


def find_by_prefix(user: str | None, prefix: str) -> Any:
    """Find the ids with a prefix among a user's or all tasks; two mean it is ambiguous."""
    # the expression makes SQLite use the index of ids instead of scanning all the user's tasks
    words = (
        "SELECT id FROM tasks WHERE id >= ? AND id < ? AND user || '' = coalesce(?, user) LIMIT 2"
    )
    beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)

    def action(store: Database) -> list[str]:
        return [row["id"] for row in store.execute(words, (prefix, beyond, user))]

    return action


def find_by_key(user: str, key: str) -> Any:
    """Find the id and digest of what a user submitted with a key, or None."""
    words = "SELECT id, digest FROM tasks WHERE user = ? AND key = ?"
    return lambda store: store.execute(words, (user, key)).fetchone()


def of_user(user: str | None, states: Sequence[str], limit: int, before: int | None) -> Any:
    """Find the tasks of a user, or of all, newest first, each with its sequence number.

    It queries each state separately, so that each is a range of an index.
    """
    terms = ["sequence < :before"] + (["user = :user"] if user is not None else [])
    values = {"user": user, "limit": limit, "before": 2**62 if before is None else before}
    known = sorted(set(states))
    values |= {f"state{number}": state for number, state in enumerate(known)}
    each = [[*terms, f"state = :state{number}"] for number in range(len(known))] or [terms]
    parts = " UNION ALL ".join(
        f"SELECT * FROM (SELECT sequence FROM tasks WHERE {' AND '.join(part)}"
        " ORDER BY sequence DESC LIMIT :limit) AS found"
        for part in each
    )
    words = (
        f"SELECT {COLUMNS} FROM tasks WHERE sequence IN ({parts})"
        " ORDER BY sequence DESC LIMIT :limit"
    )

    def action(store: Database) -> list[tuple[int, ServiceTask]]:
        rows = store.execute(words, values)
        return [(row["sequence"], task_of(row)) for row in rows]

    return action


def ended_last(device: str, user: str | None, since: float, limit: int) -> Any:
    """Find the tasks of a device, and of a user or all, that ended last, newest first."""
    words = (
        f"SELECT {COLUMNS} FROM tasks WHERE ended > :since AND device = :device"
        + (" AND user = :user" if user is not None else "")
        + " ORDER BY ended DESC LIMIT :limit"
    )
    values = {"since": since, "device": device, "user": user, "limit": limit}
    return lambda store: [task_of(row) for row in store.execute(words, values)]


def used_since(moment: float, at_once: float) -> Any:
    """Read usage as rows of user, account, used and ended, ordered by end.

    Merges an owner's usage within each interval of `at_once` seconds into one row.
    """
    words = (
        "SELECT user, account, sum(used) AS used, max(ended) AS ended FROM tasks"
        " WHERE ended > ? GROUP BY user, account, cast(ended / ? AS INTEGER) ORDER BY 4"
    )
    return lambda store: store.execute(words, (moment, at_once)).fetchall()


def jobs_since(moment: float) -> Any:
    """Read the jobs of tasks unfinished or ended since then, each with its first submission."""
    words = (
        "SELECT user, job, min(submitted) AS began FROM tasks WHERE job IS NOT NULL"
        " AND (ended > ? OR state IN ('queued', 'running')) GROUP BY user, job ORDER BY 3"
    )
    return lambda store: store.execute(words, (moment,)).fetchall()


def find_calibration(id: str) -> Any:  # noqa: A002 - the column's name
    """Find a calibration set and its device, or None."""

    def action(store: Database) -> tuple[str, CalibrationSet] | None:
        words = "SELECT device, at, metrics FROM calibrations WHERE id = ?"
        row = store.execute(words, (id,)).fetchone()
        return row and (row["device"], CalibrationSet(id, row["at"], json.loads(row["metrics"])))

    return action


KEYS = ("user", "account", "job", "device")


def usage(
    by: Sequence[str], user: str | None, since: float | None, until: float | None, now: float
) -> Any:
    """Read the usage of a period; a running task counts with the time it has run so far.

    Each of two adjacent periods gets the seconds that lie in it; the one in which the task ended
    also counts the task. An open session counts with its tasks only, until it ends. What nobody is
    to blame for has the user and the account of `SITE`.
    """
    assert all(key in KEYS for key in by)
    names = ", ".join(by)
    words = f"""
        SELECT {names}, sum(tasks) AS tasks, sum(running) AS running,
          sum(used - CASE WHEN began < :since THEN :since - began ELSE 0.0 END
            - CASE WHEN last > :until THEN last - :until ELSE 0.0 END) AS qpu_seconds,
          min(first) AS first, max(last) AS last
        FROM (
          SELECT user, account, job, device, 0 AS tasks, 0 AS running, began, began AS first,
            ended AS last, seconds AS used
          FROM occupations WHERE ended >= :since AND began < :until
          UNION ALL
          SELECT user, account, job, device, 1, 0, ended, submitted, ended, 0.0
          FROM tasks WHERE ended >= :since AND ended < :until AND used > 0
          UNION ALL
          SELECT user, account, job, device, 1, 1, started, submitted, :now, :now - started
          FROM tasks WHERE state = 'running' AND started < :now AND started < :until
            AND :now >= :since AND idle IS NULL) AS occupied
        GROUP BY {names} ORDER BY qpu_seconds DESC"""
    if user is not None:  # in each part, so that each is a range of an index
        words = words.replace("WHERE", "WHERE user = :user AND")
    terms: dict[str, Any] = {"now": now, "since": since or 0.0, "user": user}
    terms["until"] = now + 1.0 if until is None else until

    def action(store: Database) -> list[dict[str, Any]]:
        return [dict(row) for row in store.execute(words, terms)]

    return action


AT_ONCE = 5000
"""Tasks whose charges are read at a time."""


def charges(user: str | None, since: float, until: float, after: int) -> Any:
    """Read what tasks that ended in a period were charged, in order of arrival, some at a time.

    What the site pays for a task is a row of its own. Only tasks with a charge count among those at
    a time: otherwise, many without one would look like the end of the list.
    """
    mine = "" if user is None else "AND tasks.user = :user"
    payer = "" if user is None else "AND o.user = :user"
    words = f"""
        SELECT o.task, t.sequence AS number, t.name, t.state, o.user, o.account, o.job, o.device,
          t.submitted, min(o.began) AS began, max(o.ended) AS ended, sum(o.seconds) AS qpu_seconds
        FROM occupations o JOIN tasks t ON t.id = o.task
        WHERE t.sequence IN (SELECT sequence FROM tasks WHERE ended >= :since AND ended < :until
          AND sequence > :after {mine} AND EXISTS (
            SELECT 1 FROM occupations o WHERE o.task = tasks.id {payer})
          ORDER BY sequence LIMIT :most) {payer}
        GROUP BY o.task, t.sequence, t.name, t.state, o.user, o.account, o.job, o.device,
          t.submitted
        ORDER BY t.sequence, o.user"""
    terms = {"since": since, "until": until, "after": after, "user": user, "most": AT_ONCE}
    return lambda store: [dict(row) for row in store.execute(words, terms)]


def whole_id(store: Store, caller: Caller, id: str) -> str:  # noqa: A002 - the name users know
    """Complete the id of a task, of which a caller may give the beginning."""
    if len(id) >= WHOLE_ID:
        return id
    if len(id) < SHORTEST_ID:
        raise NotFound(f"{id!r} names no task; give {SHORTEST_ID} characters of its id")
    for user in (caller.user, None) if caller.operator else (caller.user,):
        found = store.read(find_by_prefix(user, id))
        if len(found) > 1:
            whose = "several tasks" if user is None else "several of your tasks"
            raise Conflict(f"{whose} begin with {id!r}; give more of the id")
        if found:
            return str(found[0])
    return id
