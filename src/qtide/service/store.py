"""The store: everything that has to survive a crash, as rows of SQLite.

Writes share commits: each waits for the next one, together with all that came meanwhile.
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
"""The result of a write, or why it failed."""

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


class StoreFailed(QtideError):  # noqa: N818 - what happened
    """The store cannot be opened or written."""


class ValueTooLarge(QtideError):  # noqa: N818 - what happened
    """The value is too large to store; other writes of the same commit succeed."""


class Store(ABC):
    """What the service keeps: in a file, or in the memory of a simulation."""

    @abstractmethod
    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is durable."""

    @abstractmethod
    def post(self, action: Action[Any]) -> None:
        """Write with the next commit; whether that succeeds is not said."""

    @abstractmethod
    def read(self, action: Action[Result]) -> Result:
        """Look something small up."""

    @abstractmethod
    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Look something up that may be large, while others continue.

        What is urgent does not wait for what is not.
        """

    @abstractmethod
    def close(self) -> None:
        """Finish the writes requested so far, and close."""


def commit(connection: sqlite3.Connection, actions: Sequence[Action[Any]]) -> list[Outcome]:
    """All of the writes in one transaction; if one of them spoils it, each in its own.

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
    """Tell the waiting callers what became of their writes."""
    for answer, (result, error) in zip(answers, outcomes, strict=True):
        if answer is None or answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)


def connect(file: Path) -> sqlite3.Connection:
    """Open the file; create it if there is none."""
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
    """An empty store in memory, which ends with the process."""
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
    """One write of several: one that violates a constraint fails, the others continue."""
    try:
        return action(connection), None
    except sqlite3.IntegrityError as error:
        return None, error


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    """Create the tables; the service and `qtide token` may both find that there are none."""
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
"""The most writes that share a commit."""
TIDY = 1.0
"""Seconds between two checkpoints, which move what was committed from the log into the database."""
MOST_UNTIDY = 16_384
"""Pages in the log at which a commit moves them itself, and everybody waits for it."""

Write = tuple[Action[Any], asyncio.Future[Any] | None]


class Reader:
    """A thread with a connection of its own."""

    def __init__(self, file: Path) -> None:
        self._connection = connect(file)
        self._thread = ThreadPoolExecutor(1, "store reader")

    async def look(self, action: Action[Result]) -> Result:
        """The result of an action in the thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, action, self._connection)

    def close(self) -> None:
        """Finish what was asked for so far."""
        self._thread.shutdown()
        self._connection.close()


class Checkpoints:
    """A thread that tidies the log up, so that no commit has to."""

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
                with suppress(sqlite3.Error):  # then a later one, or a commit, does it
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


class FileStore(Store):
    """One SQLite file, for the service and for the commands on its host."""

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
        """Look something up; an indexed query takes about ten microseconds."""
        return action(self._reading)

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Look something up in a thread, in which SQLite does not hold up others."""
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
        except BaseException as error:  # whatever it is, this thread has to go on
            failure = StoreFailed(f"{self._file} cannot be written: {error}")
            outcomes = [(None, failure) for _ in writes]
        self._checkpoints.due = True
        answers = [answer for _, answer in writes]
        waiting = next((answer for answer in answers if answer is not None), None)
        if waiting is not None:
            with suppress(RuntimeError):  # the loop is closed: no caller is waiting
                waiting.get_loop().call_soon_threadsafe(tell, answers, outcomes)
