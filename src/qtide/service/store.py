"""The store of everything that has to survive a crash; a SQLite file unless configured otherwise.

Writes share commits: those that arrive during one commit go into the next one together.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from qtide.core.errors import QtideError, UsageError
from qtide.core.files import SECRET, write_whole
from qtide.core.world.world import Future
from qtide.service.schema import STEPS, VERSION

Result = TypeVar("Result")


class Rows(Protocol):
    """The outcome of a statement; a row is read by position, or by the name of a column."""

    @property
    def rowcount(self) -> int:
        """Number of rows changed."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return all rows left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """The database as an action sees it, SQLite or PostgreSQL.

    Actions are written once, in SQL that both take.
    """

    def execute(self, words: str, values: Any = (), /) -> Rows:
        """Run a statement with values for its `?` or `:name`."""

    def executemany(self, words: str, values: Iterable[Any], /) -> Any:
        """Run a statement once for each set of values."""

    def piece_of_answer(self, sequence: int, at: int, size: int) -> bytes:
        """Read a piece of a task's answer, without reading all of it."""


class ClosableDatabase(Database, Protocol):
    """A database connection of one's own, for commands beside the service."""

    def begin(self, *, snapshot: bool) -> None:
        """Begin a transaction; with `snapshot`, one that only reads, as of one moment."""

    def renumber(self) -> None:
        """Continue the numbers of rows after those that were copied here."""

    def damage(self) -> list[str]:
        """What the database itself finds damaged."""

    def close(self) -> None:
        """Close the connection."""


Action = Callable[[Database], Result]
Outcome = tuple[Any, BaseException | None]
"""The result of a write, or the error that made it fail."""

BUSY_LIMIT = 10.0
"""Seconds to wait while another process writes to the same file."""
FILE = "store.sqlite"
ELSEWHERE = "store.url"
"""The file with the URL of the database, if that is not the file beside it."""


class StoreFailed(QtideError):  # noqa: N818 - named after what happened
    """The store cannot be opened or written."""


class ValueTooLarge(QtideError):  # noqa: N818 - named after what happened
    """The value is too large to store; the other writes in its commit succeed."""


class AlreadyStored(QtideError):  # noqa: N818 - named after what happened
    """A row with the same key exists; the other writes in the same commit succeed."""


class Store(ABC):
    """Storage of the service: a file, a server, or memory in a simulation."""

    commits = 0
    """Commits since it was opened, and those that failed."""
    failures = 0
    deadline: float | None = None
    """Time, on the monotonic clock, until which only this service uses the store and the devices;
    None if no other service can."""

    def take_lead(self, holder: str, url: str) -> bool:
        """Become the service that leads, if nobody does; return whether this one leads now."""
        return True

    @property
    def fenced(self) -> bool:
        """Whether another service may have taken over, since this one could not write for long."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def leader(self) -> tuple[str, str]:
        """Name and URL of the service that leads; both empty if there can be no other."""
        return "", ""

    @abstractmethod
    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is durable."""

    async def add(self, action: Action[Any]) -> None:
        """Write rows that nobody else writes; a service that only stands by may, too."""
        await self.write(action)

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


def commit(connection: SqliteDatabase, actions: Sequence[Action[Any]]) -> list[Outcome]:
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


def _together(connection: SqliteDatabase, actions: Iterable[Action[Any]]) -> list[Outcome]:
    try:
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_attempt(connection, action) for action in actions]
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _alone(connection: SqliteDatabase, action: Action[Any]) -> Outcome:
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


def connect(file: Path) -> SqliteDatabase:
    """Open the file; create it if it does not exist."""
    try:
        connection = _opened(str(file))
        file.chmod(0o600)
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")
        _prepare(connection, file)
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"{file} cannot be opened as the service's store: {error}") from None
    return connection


def _log_ahead(connection: SqliteDatabase) -> None:
    """Switch to a write-ahead log; SQLite does not wait for another process that does the same."""
    last = time.monotonic() + BUSY_LIMIT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > last:
                raise
            time.sleep(0.01)
        else:
            return


def in_memory() -> SqliteDatabase:
    """Open an empty database in memory, which is lost when the process ends."""
    connection = _opened(":memory:")
    for step in STEPS:
        connection.executescript(step)
    return connection


class SqliteDatabase(sqlite3.Connection):
    """A connection to a SQLite file."""

    def piece_of_answer(self, sequence: int, at: int, size: int) -> bytes:
        """Read a piece of a task's answer, without reading all of it."""
        with self.blobopen("tasks", "answer", sequence, readonly=True) as blob:
            blob.seek(at)
            return blob.read(size)

    def begin(self, *, snapshot: bool) -> None:
        """Begin a transaction; one that only reads does not keep others from writing."""
        self.execute("BEGIN" if snapshot else "BEGIN IMMEDIATE")

    def renumber(self) -> None:
        """Do nothing: SQLite's numbers follow the largest in the table."""

    def damage(self) -> list[str]:
        """What SQLite's own check finds."""
        found = [str(row[0]) for row in self.execute("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found


def _opened(place: str) -> SqliteDatabase:
    connection = sqlite3.connect(
        place,
        timeout=BUSY_LIMIT,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteDatabase,
    )
    connection.row_factory = sqlite3.Row
    return connection


def _attempt(connection: SqliteDatabase, action: Action[Any]) -> Outcome:
    """Run one of several writes; if it violates a constraint, only this one fails."""
    try:
        return action(connection), None
    except sqlite3.IntegrityError as error:
        return None, AlreadyStored(str(error))


def _prepare(connection: SqliteDatabase, file: Path) -> None:
    """Create missing tables; the service and `qtide token` may do so concurrently."""
    if _version(connection) > VERSION:
        raise StoreFailed(f"{file} was written by a newer qtide; update this one")
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[_version(connection) :]:  # another process may have been faster
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: SqliteDatabase) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreFailed(f"{file} cannot be read: {error}") from None


def open_store(folder: Path, url: str | None) -> Store:
    """Open the store at a URL, or the file in the service's folder."""
    if url is None:
        (folder / ELSEWHERE).unlink(missing_ok=True)
        return FileStore(folder / FILE)
    write_whole(folder / ELSEWHERE, url.encode(), SECRET)
    from qtide.service.postgresql import PostgresStore  # its driver is an extra

    return PostgresStore(url)


def open_database(folder: Path) -> ClosableDatabase:
    """Connect to the database of a service, for a command on the same host."""
    if (folder / FILE).is_file() and not (folder / ELSEWHERE).is_file():
        return connect(folder / FILE)
    try:
        url = (folder / ELSEWHERE).read_text()
    except OSError:
        raise UsageError(
            f"there is no state of a service in {folder}; name its folder with --state"
        ) from None
    from qtide.service.postgresql import connect as connect_to_server  # its driver is an extra

    return connect_to_server(url)


MOST_AT_ONCE = 256
"""Maximum number of writes that share a commit."""
TIDY = 1.0
"""Seconds between two checkpoints, which move committed pages from the log to the database."""
MOST_UNTIDY = 16_384
"""Pages in the log beyond which a commit itself runs a checkpoint, while all writes wait."""

Write = tuple[Action[Any], asyncio.Future[Any] | None]


class Reader:
    """A thread that runs queries on its own connection."""

    def __init__(self, database: Database, close: Callable[[], None]) -> None:
        self._database = database
        self._close = close
        self._thread = ThreadPoolExecutor(1, "store reader")

    async def look(self, action: Action[Result]) -> Result:
        """Run an action in the thread, and return its result."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, action, self._database)

    def close(self) -> None:
        """Finish the queries requested so far, and close."""
        self._thread.shutdown()
        self._close()


def _reader(connection: SqliteDatabase) -> Reader:
    return Reader(connection, connection.close)


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


class ThreadedStore(Store):
    """A database with one thread for all writes, which share commits."""

    idle_limit: float | None = None
    """Seconds without a write after which an empty commit is made; None for never."""

    def __init__(self) -> None:
        self._pending: SimpleQueue[Write | None] = SimpleQueue()
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

    def close(self) -> None:
        """Finish the writes requested so far, and end the thread."""
        self._pending.put(None)
        self._writer.join()

    @abstractmethod
    def commit(self, actions: Sequence[Action[Any]]) -> list[Outcome]:
        """Run the writes in one transaction; raise `StoreFailed` if nothing can be written."""

    def _write(self) -> None:
        while True:
            try:
                first = self._pending.get(timeout=self.idle_limit)
            except Empty:
                self._commit([])
                continue
            if first is None:
                return
            writes = [first]
            while len(writes) < MOST_AT_ONCE and not self._pending.empty():
                following = self._pending.get()
                if following is None:
                    self._pending.put(None)
                    break
                writes.append(following)
            self._commit(writes)

    def _commit(self, writes: list[Write]) -> None:
        try:
            outcomes = self.commit([action for action, _ in writes])
            self.commits += 1
        except StoreFailed as error:
            self.failures += 1
            outcomes = [(None, error) for _ in writes]
        except BaseException as error:  # this thread has to survive any error
            self.failures += 1
            outcomes = [(None, StoreFailed(f"cannot be written: {error}")) for _ in writes]
        answers = [answer for _, answer in writes]
        waiting = next((answer for answer in answers if answer is not None), None)
        if waiting is not None:
            with suppress(RuntimeError):  # the loop is closed: no caller is waiting
                waiting.get_loop().call_soon_threadsafe(tell, answers, outcomes)


class FileStore(ThreadedStore):
    """A SQLite file, shared by the service and the commands on its host."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection = connect(file)
        self._connection.execute(f"PRAGMA wal_autocheckpoint={MOST_UNTIDY}")
        self._reading = connect(file)
        self._checkpoints = Checkpoints(file)
        self._readers = {urgent: _reader(connect(file)) for urgent in (False, True)}
        super().__init__()

    def read(self, action: Action[Result]) -> Result:
        """Run a small query, at once; an indexed one takes about ten microseconds."""
        with _readable(self._file):
            return action(self._reading)

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Run a query in a reader thread, where it does not block the event loop."""
        with _readable(self._file):
            return await self._readers[urgent].look(action)

    def close(self) -> None:
        """Finish the writes requested so far, and close the file."""
        super().close()
        self._connection.close()
        self._checkpoints.close()
        for reader in self._readers.values():
            reader.close()
        self._reading.close()

    def commit(self, actions: Sequence[Action[Any]]) -> list[Outcome]:
        """Run the writes in one transaction."""
        try:
            outcomes = commit(self._connection, actions)
        except sqlite3.Error as error:
            raise StoreFailed(f"{self._file} cannot be written: {error}") from None
        self._checkpoints.due = True
        return outcomes
