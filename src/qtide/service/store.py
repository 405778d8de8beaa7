"""The SQLite store of everything that has to survive a crash.

Writes share commits: those that arrive during one commit go into the next one together.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from qtide.core.errors import QtideError
from qtide.core.world.world import Future

Result = TypeVar("Result")
Action = Callable[[sqlite3.Connection], Result]
Outcome = tuple[Any, BaseException | None]
"""The result of a write, or the error that made it fail."""

BUSY_LIMIT = 10.0
"""Seconds to wait while another process writes to the same file."""
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
CREATE INDEX tasks_by_state ON tasks (state, sequence);
CREATE INDEX tasks_by_user ON tasks (user, sequence);
CREATE INDEX tasks_by_user_and_state ON tasks (user, state, sequence);
CREATE INDEX tasks_by_end ON tasks (ended);
CREATE INDEX tasks_to_purge ON tasks (ended) WHERE payload IS NOT NULL;
CREATE TABLE tokens (
  digest TEXT PRIMARY KEY, user TEXT NOT NULL, account TEXT NOT NULL, job INTEGER,
  operator INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, name TEXT NOT NULL,
  holder INTEGER, holder_start INTEGER
);
CREATE TABLE operators (user TEXT PRIMARY KEY);
CREATE TABLE drains (
  device TEXT PRIMARY KEY, reason TEXT NOT NULL, since REAL NOT NULL, licences INTEGER NOT NULL
);
"""


class StoreFailed(QtideError):  # noqa: N818 - named after what happened
    """The store cannot be opened or written."""


class ValueTooLarge(QtideError):  # noqa: N818 - named after what happened
    """The value is too large to store; the other writes in its commit succeed."""


class Store(ABC):
    """Storage of the service: a file, or memory in a simulation."""

    commits = 0
    """Commits since it was opened, and those that failed."""
    failures = 0

    @abstractmethod
    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is durable."""

    @abstractmethod
    def post(self, action: Action[Any]) -> None:
        """Write with the next commit, without reporting whether that succeeds."""

    @abstractmethod
    def read(self, action: Action[Result]) -> Result:
        """Run a small query, at once."""

    @abstractmethod
    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Run a query that may be large, without blocking others.

        Urgent queries do not wait for the rest.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish the writes requested so far, and close."""


def commit(connection: sqlite3.Connection, actions: Sequence[Action[Any]]) -> list[Outcome]:
    """Run the writes in one transaction; if one of them breaks it, each in its own.

    Raises sqlite3.OperationalError if nothing can be written.
    """
    try:
        return _together(connection, actions)
    except sqlite3.OperationalError:
        raise
    except Exception as error:
        if len(actions) == 1:
            return [(None, ValueTooLarge(str(error)))]
    return [_alone(connection, action) for action in actions]


def _together(connection: sqlite3.Connection, actions: Iterable[Action[Any]]) -> list[Outcome]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_attempt(connection, action) for action in actions]
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _alone(connection: sqlite3.Connection, action: Action[Any]) -> Outcome:
    try:
        return commit(connection, [action])[0]
    except sqlite3.OperationalError as error:
        return None, StoreFailed(f"the store cannot be written: {error}")


def tell(answers: Iterable[Future[Any] | None], outcomes: Iterable[Outcome]) -> None:
    """Pass the outcomes of their writes to the waiting callers."""
    for answer, (result, error) in zip(answers, outcomes, strict=True):
        if answer is None or answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


def connect(file: Path) -> sqlite3.Connection:
    """Open the file; create it if it does not exist."""
    try:
        connection = _opened(str(file))
        file.chmod(0o600)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        _prepare(connection, file)
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"{file} cannot be opened as the service's store: {error}") from None
    return connection


def in_memory() -> sqlite3.Connection:
    """Open an empty database in memory, which is lost when the process ends."""
    connection = _opened(":memory:")
    connection.executescript(SCHEMA)
    return connection


def _opened(place: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place, timeout=BUSY_LIMIT, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    return connection


def _attempt(connection: sqlite3.Connection, action: Action[Any]) -> Outcome:
    """Run one of several writes; if it violates a constraint, only this one fails."""
    try:
        return action(connection), None
    except sqlite3.IntegrityError as error:
        return None, error


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    """Create the tables if missing; the service and `qtide token` may do so concurrently."""
    if _version(connection) > VERSION:
        raise StoreFailed(f"{file} was written by a newer qtide; update this one")
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) == 0:  # another process may have been faster
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


MOST_AT_ONCE = 256
"""Maximum number of writes that share a commit."""
TIDY = 1.0
"""Seconds between two checkpoints, which move committed pages from the log to the database."""
MOST_UNTIDY = 16_384
"""Pages in the log beyond which a commit itself runs a checkpoint, while all writes wait."""

Write = tuple[Action[Any], asyncio.Future[Any] | None]


class Reader:
    """A thread that runs queries on its own connection."""

    def __init__(self, file: Path) -> None:
        self._connection = connect(file)
        self._thread = ThreadPoolExecutor(1, "store reader")

    async def look(self, action: Action[Result]) -> Result:
        """Run an action in the thread, and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, action, self._connection)

    def close(self) -> None:
        """Finish the queries requested so far, and close."""
        self._thread.shutdown()
        self._connection.close()


class Checkpoints:
    """A thread that checkpoints the log, so that no commit has to."""

    def __init__(self, file: Path) -> None:
        self.due = False
        self._connection = connect(file)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tidy, name="checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()
        self._connection.close()

    def _tidy(self) -> None:
        while not self._closing.wait(TIDY):
            if self.due:
                self.due = False
                with suppress(sqlite3.Error):  # a later checkpoint or a commit does it
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


class FileStore(Store):
    """A SQLite file, shared by the service and the commands on its host."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pending: SimpleQueue[Write | None] = SimpleQueue()
        self._connection = connect(file)
        self._connection.execute(f"PRAGMA wal_autocheckpoint={MOST_UNTIDY}")
        self._reading = connect(file)
        self._checkpoints = Checkpoints(file)
        self._readers = {urgent: Reader(file) for urgent in (False, True)}
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        self._writer.start()

    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is on disk."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.put((action, answer))
        return await answer

    def post(self, action: Action[Any]) -> None:
        """Write with the next commit."""
        self._pending.put((action, None))

    def read(self, action: Action[Result]) -> Result:
        """Run a small query, at once; an indexed one takes about ten microseconds."""
        return action(self._reading)

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Run a query in a reader thread, where it does not block the event loop."""
        return await self._readers[urgent].look(action)

    def close(self) -> None:
        """Finish the writes requested so far, and close the file."""
        self._pending.put(None)
        self._writer.join()
        self._checkpoints.close()
        for reader in self._readers.values():
            reader.close()
        self._reading.close()

    def _write(self) -> None:
        while (first := self._pending.get()) is not None:
            writes = [first]
            while len(writes) < MOST_AT_ONCE and not self._pending.empty():
                following = self._pending.get()
                if following is None:
                    self._pending.put(None)
                    break
                writes.append(following)
            self._commit(writes)
        self._connection.close()

    def _commit(self, writes: list[Write]) -> None:
        try:
            outcomes = commit(self._connection, [action for action, _ in writes])
            self.commits += 1
        except BaseException as error:  # this thread has to survive any error
            self.failures += 1
            failure = StoreFailed(f"{self._file} cannot be written: {error}")
            outcomes = [(None, failure) for _ in writes]
        self._checkpoints.due = True
        answers = [answer for _, answer in writes]
        waiting = next((answer for answer in answers if answer is not None), None)
        if waiting is not None:
            with suppress(RuntimeError):  # the loop is closed: no caller is waiting
                waiting.get_loop().call_soon_threadsafe(tell, answers, outcomes)
