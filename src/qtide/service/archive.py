"""Copies of a whole store: backups, restores, and the way from one database to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qtide.core.errors import UsageError
from qtide.service.store import ClosableDatabase, Database, StoreFailed, in_memory

AT_ONCE = 1000
"""Rows of a table to write at a time; tasks are copied one by one, since each may be large."""
INVARIANTS = {
    "tasks ended without a time": "SELECT count(*) FROM tasks"
    " WHERE ended IS NULL AND state IN ('done', 'failed', 'cancelled')",
    "unfinished tasks with an end": "SELECT count(*) FROM tasks"
    " WHERE ended IS NOT NULL AND state IN ('queued', 'running')",
    "unfinished tasks without a payload": "SELECT count(*) FROM tasks"
    " WHERE payload IS NULL AND state IN ('queued', 'running')",
    "done tasks without an answer": "SELECT count(*) FROM tasks"
    " WHERE state = 'done' AND answer_format IS NULL",
    "occupations that end before they begin": "SELECT count(*) FROM occupations WHERE seconds < 0",
}
"""Queries that count what must not exist."""


def tables() -> dict[str, list[str]]:
    """The tables of a store and their columns."""
    empty = in_memory()
    names = empty.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return {
        row["name"]: [each["name"] for each in empty.execute(f"PRAGMA table_info({row['name']})")]
        for row in names.fetchall()
        if not row["name"].startswith("sqlite_")
    }


def copy(source: ClosableDatabase, target: ClosableDatabase) -> dict[str, int]:
    """Copy all rows, as of one moment, to an empty database; return their number by table."""
    known = tables()
    filled = [name for name, number in counts(target).items() if number]
    if filled:
        raise UsageError(f"the target already has {', '.join(filled)}; name an empty one")
    with _transaction(source, snapshot=True), _transaction(target):
        for name, columns in known.items():
            words = ", ".join(columns)
            marks = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {name} ({words}) VALUES ({marks})"
            for rows in _batches(source, name, words):
                target.executemany(insert, rows)
        target.renumber()
        copied, expected = counts(target), counts(source)
    if copied != expected:
        raise StoreFailed(f"the copy has {copied} rows in place of {expected}; do not use it")
    return copied


def counts(database: Database) -> dict[str, int]:
    """The number of rows of each table."""
    found = {}
    for name in tables():
        found[name] = int(database.execute(f"SELECT count(*) FROM {name}").fetchone()[0])
    return found


def faults(database: ClosableDatabase) -> list[str]:
    """What is wrong with a store; empty if nothing is."""
    found = database.damage()
    for what, words in INVARIANTS.items():
        number = database.execute(words).fetchone()[0]
        if number:
            found.append(f"{number} {what}")
    return found


def _batches(source: Database, table: str, words: str) -> Iterator[list[tuple[object, ...]]]:
    if table != "tasks":
        rows = source.execute(f"SELECT {words} FROM {table}").fetchall()
        for at in range(0, len(rows), AT_ONCE):
            yield [tuple(row) for row in rows[at : at + AT_ONCE]]
        return
    for (sequence,) in source.execute("SELECT sequence FROM tasks ORDER BY sequence").fetchall():
        find = f"SELECT {words} FROM tasks WHERE sequence = ?"
        yield [tuple(source.execute(find, (sequence,)).fetchone())]


@contextmanager
def _transaction(database: ClosableDatabase, *, snapshot: bool = False) -> Iterator[None]:
    database.begin(snapshot=snapshot)
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
