"""Tasks as rows of the store: every change and query of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.backends.devices.device import Occupation
from qtide.backends.payloads.payload import Encoded
from qtide.service.store import Database
from qtide.service.task import (
    Booking,
    CalibrationSet,
    CalibrationTerms,
    Caller,
    Ending,
    ServiceTask,
    TaskState,
)

COLUMNS = (
    "sequence, id, user, account, job, device, name, format, shots, seed, size, seconds, priority,"
    " max_wait, submitted, state, attempts, started, ended, used, error, calibration,"
    " wanted_calibration, calibrated_within"
)
"""All columns of a task except the large ones."""


PURGE_AT_ONCE = 500


@dataclass(frozen=True)
class Draft:
    """What to store in addition to the task itself."""

    payload: Encoded
    digest: str
    """Digest of the whole request, to tell whether a repeated key means the same task."""
    key: str | None = None
    request: bytes | None = None
    """The request in the format of its API, if the API has to return it."""


def insert(task: ServiceTask, draft: Draft) -> Any:
    """Insert an accepted task."""
    caller = task.caller
    row = {
        "id": task.id,
        "user": caller.user,
        "account": caller.account,
        "job": caller.job,
        "key": draft.key,
        "digest": draft.digest,
        "device": task.device,
        "name": task.name,
        "format": draft.payload.format,
        "shots": task.shots,
        "seed": task.seed,
        "size": task.size,
        "seconds": task.seconds,
        "priority": task.priority,
        "max_wait": task.max_wait,
        "wanted_calibration": task.terms.id,
        "calibrated_within": task.terms.within,
        "submitted": task.submitted,
        "state": task.state,
        "attempts": 0,
        "used": 0.0,
        "request": draft.request,
        "payload": draft.payload.data,
    }
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    return lambda store: store.execute(f"INSERT INTO tasks ({names}) VALUES ({marks})", row)


def withdraw(task: ServiceTask) -> Any:
    """Delete a task that was not accepted after all, before anybody learnt of it."""
    return lambda store: store.execute("DELETE FROM tasks WHERE id = ?", (task.id,))


def payloads(tasks: Sequence[ServiceTask]) -> Any:
    """Read the payloads of tasks that go to the device."""
    find = "SELECT payload FROM tasks WHERE id = ?"
    ids = [(task.id,) for task in tasks]
    return lambda store: [store.execute(find, each).fetchone()["payload"] for each in ids]


def begin(task: ServiceTask) -> Any:
    """Record that a task began on the device; from now on, the attempt counts."""
    words = (
        "UPDATE tasks SET state = 'running', attempts = ?, started = ?, calibration = ?"
        " WHERE id = ? AND attempts <= ? AND state IN ('queued', 'running')"
    )
    row = (task.attempts, task.started, task.calibration, task.id, task.attempts)
    return lambda store: store.execute(words, row)


def hand_back(tasks: Iterable[ServiceTask]) -> Any:
    """Record that tasks wait again, with their attempts and what they have used so far."""
    words = "UPDATE tasks SET state = 'queued', started = NULL, attempts = ?, used = ? WHERE id = ?"
    rows = [(task.attempts, task.used, task.id) for task in tasks]
    occupied = [row for task in tasks for row in _booked(task)]

    def action(store: Database) -> None:
        store.executemany(words, rows)
        store.executemany(BOOK, occupied)

    return action


BOOK = "INSERT INTO occupations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
SITE = Caller("(site)", "(site)")
"""Who pays for what nobody is to blame for."""


def _booked(task: ServiceTask, cause: str = "") -> list[tuple[Any, ...]]:
    """The rows of a task's new occupations; with a cause, the site pays for all of them."""
    return [
        _row(task.id, task.device, each, SITE if cause or each.cause else task.caller, cause)
        for each in task.unbooked
    ]


def book_rest(device: str, occupations: Iterable[Occupation], cause: str) -> Any:
    """Book to the site what occupied the device and is not in the store."""
    rows = [
        _row(each.ticket.partition(":")[0], device, Booking(each.began, each.seconds, cause), SITE)
        for each in occupations
    ]
    return lambda store: store.executemany(BOOK, rows)


def _row(id: str, device: str, each: Booking, payer: Caller, cause: str = "") -> tuple[Any, ...]:  # noqa: A002 - the column's name
    period = (each.began, each.seconds, each.began + each.seconds)
    return (id, *period, device, payer.user, payer.account, payer.job, cause or each.cause)


def finish(task: ServiceTask, ending: Ending, answer: Encoded | None = None) -> Any:
    """Record how a task ended; False if it had already ended or a later attempt has started.

    The store may know of fewer attempts, if it failed to record the last one.
    """
    row = {
        "id": task.id,
        "attempts": task.attempts,
        "state": ending.state,
        "started": task.started,
        "ended": ending.at,
        "used": ending.used,
        "error": ending.error,
        "calibration": task.calibration,
        "answer_format": answer.format if answer else None,
        "answer": answer.data if answer else None,
    }

    def action(store: Database) -> bool:
        changed = store.execute(
            "UPDATE tasks SET state = :state, attempts = :attempts, started = :started,"
            " ended = :ended, used = :used, error = :error, calibration = :calibration,"
            " answer_format = :answer_format, answer = :answer"
            " WHERE id = :id AND attempts <= :attempts AND state IN ('queued', 'running')",
            row,
        )
        recorded = changed.rowcount == 1
        store.executemany(BOOK, booked if recorded else unused)
        return recorded

    booked, unused = _booked(task), _booked(task, "its answer came too late")
    return action


EMPTY = "payload = NULL, request = NULL, answer = NULL, answer_format = 'purged'"


def forget(id: str) -> Any:  # noqa: A002 - the column's name
    """Delete a task's payload and answer; keep its usage record."""
    return lambda store: store.execute(f"UPDATE tasks SET {EMPTY} WHERE id = ?", (id,))


def purge(before: float) -> Any:
    """Delete payloads and answers of tasks that ended before a time; keep their usage records.

    Deletes a limited number, so as not to block other writes; returns how many.
    """
    words = (
        f"UPDATE tasks SET {EMPTY}"
        " WHERE sequence IN (SELECT sequence FROM tasks"
        " WHERE ended < ? AND payload IS NOT NULL LIMIT ?)"
    )
    return lambda store: store.execute(words, (before, PURGE_AT_ONCE)).rowcount


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


def find_blob(id: str, column: str) -> Any:  # noqa: A002 - the column's name
    """Read a task's payload, request or answer, with the format of its answer."""
    words = f"SELECT {column}, answer_format FROM tasks WHERE id = ?"
    return lambda store: store.execute(words, (id,)).fetchone()


def answer_extent(id: str) -> Any:  # noqa: A002 - the column's name
    """Read the row, format and size of a task's answer."""
    words = "SELECT sequence, answer_format, length(answer) AS bytes FROM tasks WHERE id = ?"
    return lambda store: store.execute(words, (id,)).fetchone()


def answer_piece(sequence: int, at: int, size: int) -> Any:
    """Read a piece of an answer, without reading all of it."""
    return lambda store: store.piece_of_answer(sequence, at, size)


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


def task_of(row: Sequence[Any]) -> ServiceTask:
    """Convert a row to a task, by position, since access by name takes twice as long."""
    _, id, user, account, job, device, name, format, shots, seed, size, seconds, *rest = row  # noqa: A001 - columns
    priority, max_wait, submitted, state, attempts, started, ended, used, error, *sets = rest
    calibration, wanted, within = sets
    return ServiceTask(
        id=id,
        caller=Caller(user, account, job),
        device=device,
        name=name,
        format=format,
        shots=shots,
        seed=seed,
        size=size,
        seconds=seconds,
        priority=priority,
        max_wait=max_wait,
        terms=CalibrationTerms(wanted, within),
        calibration=calibration,
        submitted=submitted,
        state=TaskState(state),
        attempts=attempts,
        started=started,
        ended=ended,
        used=used,
        error=error,
    )


def note_calibration(device: str, found: CalibrationSet) -> Any:
    """Record a calibration set, unless it is known; return when it was first seen."""
    words = (
        "INSERT INTO calibrations (id, device, at, metrics) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (id) DO NOTHING"
    )
    row = (found.id, device, found.at, json.dumps(found.metrics))

    def action(store: Database) -> float:
        store.execute(words, row)
        at: float = store.execute(
            "SELECT at FROM calibrations WHERE id = ?", (found.id,)
        ).fetchone()["at"]
        return at

    return action


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
    also counts the task. What nobody is to blame for has the user and the account of `SITE`.
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
            AND :now >= :since) AS occupied
        WHERE user = coalesce(:user, user)
        GROUP BY {names} ORDER BY qpu_seconds DESC"""
    terms: dict[str, Any] = {"now": now, "since": since or 0.0, "user": user}
    terms["until"] = now + 1.0 if until is None else until

    def action(store: Database) -> list[dict[str, Any]]:
        return [dict(row) for row in store.execute(words, terms)]

    return action
