"""The store: SQLite, written by one thread that commits many requests at a time.

A commit costs about as much for a hundred rows as for one. So whoever writes waits for the next
commit, together with all who came meanwhile; when the wait is over, what was written is on disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from qtide.errors import QtideError

Result = TypeVar("Result")
Action = Callable[[sqlite3.Connection], Result]

MOST_AT_ONCE = 256
"""Writes that share a commit."""
BUSY_LIMIT = 10.0
"""Seconds to wait for another process that writes to the same file."""
VERSION = 1

SCHEMA = """
CREATE TABLE tasks (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL,
  account TEXT NOT NULL, job INTEGER, key TEXT, digest TEXT NOT NULL, device TEXT NOT NULL,
  name TEXT NOT NULL, format TEXT NOT NULL, shots INTEGER NOT NULL, seed INTEGER NOT NULL,
  size INTEGER NOT NULL, seconds REAL NOT NULL, priority INTEGER NOT NULL, max_wait REAL,
  submitted REAL NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, started REAL,
  ended REAL, used REAL NOT NULL, error TEXT, request BLOB, payload BLOB,
  answer_format TEXT, answer BLOB
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (user, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_by_state ON tasks (state) WHERE state IN ('queued', 'running');
CREATE INDEX tasks_by_user ON tasks (user, sequence);
CREATE INDEX tasks_by_end ON tasks (ended);
CREATE INDEX tasks_to_purge ON tasks (ended) WHERE payload IS NOT NULL;
CREATE TABLE tokens (
  digest TEXT PRIMARY KEY, user TEXT NOT NULL, account TEXT NOT NULL, job INTEGER,
  operator INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, name TEXT NOT NULL,
  holder INTEGER, holder_start INTEGER
);
CREATE TABLE drains (
  device TEXT PRIMARY KEY, reason TEXT NOT NULL, since REAL NOT NULL, licences INTEGER NOT NULL
);
"""


class StoreFailed(QtideError):  # noqa: N818 - what happened
    """The store cannot be opened or written."""


class Store:
    """One SQLite file, for the service and for the commands on its host."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wishes: SimpleQueue[tuple[Action[Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._connection = connect(file)
        self._reading = connect(file)
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        self._writer.start()

    async def write(self, action: Action[Result]) -> Result:
        """Return what `action` returned, once that is on disk."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._wishes.put((action, answer))
        return await answer

    def read(self, action: Action[Result]) -> Result:
        """Look something up; what is indexed takes some ten microseconds."""
        return action(self._reading)

    def close(self) -> None:
        """Write what was asked for until now, and end."""
        self._wishes.put(None)
        self._writer.join()
        self._reading.close()

    def _write(self) -> None:
        while (wish := self._wishes.get()) is not None:
            wishes = [wish]
            while len(wishes) < MOST_AT_ONCE and not self._wishes.empty():
                following = self._wishes.get()
                if following is None:
                    self._wishes.put(None)
                    break
                wishes.append(following)
            self._commit(wishes)
        self._connection.close()

    def _commit(self, wishes: list[tuple[Action[Any], asyncio.Future[Any]]]) -> None:
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for action, answer in wishes:
                outcomes.append((answer, *self._attempt(action)))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            failure = StoreFailed(f"{self._file} cannot be written: {error}")
            outcomes = [(answer, None, failure) for _, answer in wishes]
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            wishes[0][1].get_loop().call_soon_threadsafe(_tell, outcomes)

    def _attempt(self, action: Action[Any]) -> tuple[Any, BaseException | None]:
        """One write by itself: a statement that breaks a rule is undone, the others go on."""
        try:
            return action(self._connection), None
        except sqlite3.IntegrityError as error:
            return None, error


def connect(file: Path) -> sqlite3.Connection:
    """Open the file; make it if it is not there."""
    try:
        connection = sqlite3.connect(
            file, timeout=BUSY_LIMIT, isolation_level=None, check_same_thread=False
        )
        file.chmod(0o600)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        _prepare(connection, file)
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"{file} cannot be opened as the service's store: {error}") from None
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreFailed(f"{file} was written by a newer qtide; update this one")
    if version == 0:
        connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version={VERSION}; COMMIT")


def _tell(outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]]) -> None:
    for answer, result, error in outcomes:
        if answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
