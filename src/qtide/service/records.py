"""Tasks as rows of the store: every change of a task that has to survive a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.payloads.encoded import Encoded
from qtide.service.task import Caller, Ending, State, Task

COLUMNS = (
    "sequence, id, user, account, job, device, name, format, shots, seed, size, seconds, priority,"
    " max_wait, submitted, state, attempts, started, ended, used, error"
)
"""All columns of a task but the large ones."""


PURGE_AT_ONCE = 500


@dataclass(frozen=True)
class Draft:
    """What is stored in addition to the task itself."""

    payload: Encoded
    digest: str
    """Of the whole request: tells whether a repeated key means the same task."""
    key: str | None = None
    request: bytes | None = None
    """The request in the format of its API, if that has to return it."""


def insert(task: Task, draft: Draft) -> Any:
    """Accept a task."""
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


def hand_over(tasks: Sequence[Task], now: float) -> Any:
    """Record that tasks go to the device, and return their payloads."""

    def action(store: sqlite3.Connection) -> list[bytes]:
        store.executemany(
            "UPDATE tasks SET state = 'running', attempts = ?, started = ? WHERE id = ?",
            [(task.attempts, now, task.id) for task in tasks],
        )
        find = "SELECT payload FROM tasks WHERE id = ?"
        return [store.execute(find, (task.id,)).fetchone()["payload"] for task in tasks]

    return action


def hand_back(tasks: Iterable[Task]) -> Any:
    """Record that tasks wait again."""
    words = "UPDATE tasks SET state = 'queued', started = NULL WHERE id = ?"
    ids = [(task.id,) for task in tasks]
    return lambda store: store.executemany(words, ids)


def finish(task: Task, ending: Ending, answer: Encoded | None = None) -> Any:
    """Record how a task ended: True, unless it had ended already, or a later attempt has started.

    The store may know of fewer attempts, if it refused to record the last one.
    """
    row = {
        "id": task.id,
        "attempts": task.attempts,
        "state": ending.state,
        "started": task.started,
        "ended": ending.at,
        "used": ending.used,
        "error": ending.error,
        "answer_format": answer.format if answer else None,
        "answer": answer.data if answer else None,
    }

    def action(store: sqlite3.Connection) -> bool:
        changed = store.execute(
            "UPDATE tasks SET state = :state, started = :started, ended = :ended, used = :used,"
            " error = :error, answer_format = :answer_format, answer = :answer"
            " WHERE id = :id AND attempts <= :attempts AND state IN ('queued', 'running')",
            row,
        )
        return changed.rowcount == 1

    return action


EMPTY = "payload = NULL, request = NULL, answer = NULL, answer_format = 'purged'"


def forget(id: str) -> Any:  # noqa: A002 - the column's name
    """Delete payload and answer of a task; its usage record stays."""
    return lambda store: store.execute(f"UPDATE tasks SET {EMPTY} WHERE id = ?", (id,))


def purge(before: float) -> Any:
    """Delete payloads and answers of tasks that ended before a moment; their usage records stay.

    Only a limited number at a time, to block no other write; returns how many.
    """
    words = (
        f"UPDATE tasks SET {EMPTY}"
        " WHERE sequence IN (SELECT sequence FROM tasks"
        " WHERE ended < ? AND payload IS NOT NULL LIMIT ?)"
    )
    return lambda store: store.execute(words, (before, PURGE_AT_ONCE)).rowcount


def live(store: sqlite3.Connection) -> list[Task]:
    """All tasks that are not over, in the order of their arrival."""
    rows = store.execute(
        f"SELECT {COLUMNS} FROM tasks WHERE state IN ('queued', 'running') ORDER BY sequence"
    )
    return [task_of(row) for row in rows]


def find(id: str) -> Any:  # noqa: A002 - the column's name
    """The task with that id, or None."""

    def action(store: sqlite3.Connection) -> Task | None:
        row = store.execute(f"SELECT {COLUMNS} FROM tasks WHERE id = ?", (id,)).fetchone()
        return task_of(row) if row else None

    return action


def find_by_prefix(user: str, prefix: str) -> Any:
    """The ids of a user's tasks with that prefix; at most two, since then it is ambiguous."""
    # the sign in +user makes SQLite use the index of ids, not go through all tasks of the user
    words = "SELECT id FROM tasks WHERE id >= ? AND id < ? AND +user = ? LIMIT 2"
    beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1)

    def action(store: sqlite3.Connection) -> list[str]:
        return [row["id"] for row in store.execute(words, (prefix, beyond, user))]

    return action


def find_by_key(user: str, key: str) -> Any:
    """The id and the digest of what a user submitted with a key, or None."""
    words = "SELECT id, digest FROM tasks WHERE user = ? AND key = ?"
    return lambda store: store.execute(words, (user, key)).fetchone()


def find_blob(id: str, column: str) -> Any:  # noqa: A002 - the column's name
    """The payload, the request or the answer of a task, with the format of its answer."""
    words = f"SELECT {column}, answer_format FROM tasks WHERE id = ?"
    return lambda store: store.execute(words, (id,)).fetchone()


def of_user(user: str | None, states: Sequence[str], limit: int, before: int | None) -> Any:
    """Tasks of a user, or of all, newest first, each with its sequence number."""
    terms, values = ["1"], list[Any]()
    if user is not None:
        terms, values = [*terms, "user = ?"], [*values, user]
    if states:
        terms.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    if before is not None:
        terms, values = [*terms, "sequence < ?"], [*values, before]
    words = (
        f"SELECT {COLUMNS} FROM tasks WHERE {' AND '.join(terms)} ORDER BY sequence DESC LIMIT ?"
    )

    def action(store: sqlite3.Connection) -> list[tuple[int, Task]]:
        rows = store.execute(words, (*values, limit))
        return [(row["sequence"], task_of(row)) for row in rows]

    return action


def used_since(moment: float) -> Any:
    """Usage as rows of user, account, used and ended, in the order of their ends."""
    words = "SELECT user, account, used, ended FROM tasks WHERE ended > ? ORDER BY ended"
    return lambda store: store.execute(words, (moment,)).fetchall()


def task_of(row: sqlite3.Row) -> Task:
    """A row as a task."""
    return Task(
        id=row["id"],
        caller=Caller(row["user"], row["account"], row["job"]),
        device=row["device"],
        name=row["name"],
        format=row["format"],
        shots=row["shots"],
        seed=row["seed"],
        size=row["size"],
        seconds=row["seconds"],
        priority=row["priority"],
        max_wait=row["max_wait"],
        submitted=row["submitted"],
        state=State(row["state"]),
        attempts=row["attempts"],
        started=row["started"],
        ended=row["ended"],
        used=row["used"],
        error=row["error"],
    )
