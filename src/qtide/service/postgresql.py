"""The store on a PostgreSQL server, which a service and its standby on another host share.

It holds the same rows as the SQLite file, and runs the same actions. Only the leader writes: each
transaction first renews the leader's lease, and fails if another service has taken over. So nothing
that a former leader still does can reach the store, however late it comes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NoReturn

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict

from qtide.service.fence import Fence
from qtide.service.schema import STEPS, VERSION
from qtide.service.store import (
    Action,
    AlreadyStored,
    Outcome,
    Reader,
    Result,
    Rows,
    StoreFailed,
    ThreadedStore,
    ValueTooLarge,
)

log = logging.getLogger(__name__)

LEASE = 3.0
"""Seconds without a commit after which another service may take over; a leader with nothing to
write commits several times within it."""
MARGIN = 0.2
"""Seconds by which a leader stops using its lease early, for clocks that run at different rates."""
POLL = 0.1
"""Seconds between two looks of a standby at the lease."""
CONNECTING = 2
"""Seconds that a connection may take; libpq takes no less."""
SILENCE = 2000
"""Milliseconds after which a server that acknowledges nothing counts as gone."""
PROBES: dict[str, Any] = {
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
"""Seconds until a silent connection is probed, between two probes, and how many may fail. Without
them, who waits for an answer that a cut wire swallowed would wait for hours."""
LIMITS = (
    f"-c statement_timeout=60s -c idle_in_transaction_session_timeout={LEASE:g}s"
    f" -c tcp_user_timeout={SILENCE} "
    + " ".join(f"-c tcp_{name}={value}" for name, value in PROBES.items())
)
"""The server ends what takes longer, and connections whose other end is gone: a transaction left
open would lock the lease."""
UNCERTAIN = 60.0
"""Seconds to find out whether a commit that got no answer was made."""
DEPOSED = 75
"""Exit code of a leader that another service has replaced, or may replace; it starts again."""

TABLES = """
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version VALUES (1);
CREATE TABLE leadership (
  only_row INTEGER PRIMARY KEY, term BIGINT NOT NULL, holder TEXT NOT NULL, url TEXT NOT NULL,
  until DOUBLE PRECISION NOT NULL
);
INSERT INTO leadership VALUES (1, 0, '', '', 0);
ALTER TABLE tasks ALTER COLUMN answer SET STORAGE EXTERNAL;
"""
"""What only PostgreSQL has; answers stay uncompressed, so that they can be read in pieces."""
NOW = "extract(epoch FROM clock_timestamp())"
TAKE = (
    f"UPDATE leadership SET term = term + 1, holder = ?, url = ?, until = {NOW} + {LEASE}"
    f" WHERE only_row = (SELECT only_row FROM leadership WHERE until < {NOW}"
    " FOR UPDATE SKIP LOCKED) RETURNING term"
)
"""Take the lead if the lease has run out, without waiting for a transaction that renews it."""
RENEW = f"UPDATE leadership SET until = {NOW} + {LEASE} WHERE term = ? RETURNING until"
GIVE_UP = "UPDATE leadership SET until = 0 WHERE term = ?"
OUTCOME = "SELECT term, until FROM leadership FOR UPDATE"
"""Which renewal was the last, after waiting for one that still goes on. The number of a transaction
would not tell: a server that was killed may give a lost one's to another."""
GONE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
"""Errors of a connection or its server, as opposed to those of a statement. After them we connect
anew: a server that only reads by now may have been replaced by another one at the same URL."""


class Row(tuple[Any, ...]):
    """A row whose values are found by position or by the name of their column."""

    names: Mapping[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.names[key] if isinstance(key, str) else key)

    def keys(self) -> Iterable[str]:
        """The names of the columns; with them, `dict` takes a row."""
        return self.names.keys()


def _rows(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Row]:
    names = {column.name: at for at, column in enumerate(cursor.description or ())}

    def made(values: Sequence[Any]) -> Row:
        row = Row(values)
        row.names = names
        return row

    return made


class NumberLoader(Loader):
    """Reads PostgreSQL's exact numbers, such as sums of integers, as Python's int or float."""

    def load(self, data: Buffer) -> int | float:
        """Convert the digits."""
        text = bytes(data).decode()
        return float(text) if "." in text else int(text)


class PostgresDatabase:
    """A connection to the server that takes SQLite's placeholders and gives SQLite's rows."""

    def __init__(self, url: str) -> None:
        try:
            own = str(conninfo_to_dict(url).get("options", ""))
            self._connection = psycopg.connect(
                url,
                autocommit=True,
                row_factory=_rows,
                prepare_threshold=2,
                connect_timeout=CONNECTING,
                tcp_user_timeout=SILENCE,
                **PROBES,
                application_name="qtide",
                options=f"{own} {LIMITS}",
            )
        except psycopg.Error as error:
            raise StoreFailed(f"the database cannot be reached: {_sentence(error)}") from None
        self._connection.adapters.register_loader("numeric", NumberLoader)

    def execute(self, words: str, values: Any = (), /) -> Rows:
        """Run a statement with values for its `?` or `:name`."""
        return self._connection.execute(_translated(words), values or None)

    def executemany(self, words: str, values: Iterable[Any], /) -> None:
        """Run a statement once for each set of values."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_translated(words), list(values))

    def piece_of_answer(self, sequence: int, at: int, size: int) -> bytes:
        """Read a piece of a task's answer, without reading all of it."""
        words = "SELECT substr(answer, ?, ?) FROM tasks WHERE sequence = ?"
        row = self.execute(words, (at + 1, size, sequence)).fetchone()
        return bytes(row[0]) if row else b""

    def begin(self, *, snapshot: bool) -> None:
        """Begin a transaction; with `snapshot`, one that only reads, as of one moment."""
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" if snapshot else "BEGIN")

    def renumber(self) -> None:
        """Continue the numbers of rows after those that were copied here."""
        for table, column in NUMBERED.items():
            numbers = f"pg_get_serial_sequence('{table}', '{column}')"
            self.execute(f"SELECT setval({numbers}, 1 + coalesce(max({column}), 0)) FROM {table}")

    def damage(self) -> list[str]:
        """Nothing: PostgreSQL checks its files itself (pg_amcheck, data checksums)."""
        return []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


NUMBERED = {"tasks": "sequence", "maintenance": "number", "allocations": "number"}
"""Tables whose rows the database numbers."""
USER = re.compile(r"(?<![:\w\"])user(?!\w)")
"""The column `user`, which PostgreSQL takes for its own function unless it stands in quotes."""
NAMED = re.compile(r"(?<![:\w]):([a-z_]\w*)")
TYPES = {
    "INTEGER PRIMARY KEY": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    " INTEGER": " BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
}
"""SQLite's types and PostgreSQL's."""


@lru_cache(maxsize=1024)
def _translated(words: str) -> str:
    """The statement with PostgreSQL's placeholders."""
    quoted = USER.sub('"user"', words.replace("%", "%%"))
    return NAMED.sub(r"%(\1)s", quoted).replace("?", "%s")


def _statements(step: str) -> list[str]:
    """The statements of a step of the schema, with PostgreSQL's types."""
    for sqlite, postgresql in TYPES.items():
        step = step.replace(sqlite, postgresql)
    return list(filter(str.strip, step.split(";")))


def connect(url: str) -> PostgresDatabase:
    """Connect to the database; create the tables if they do not exist."""
    database = PostgresDatabase(url)
    try:
        _prepare(database)
    except psycopg.Error as error:
        database.close()
        raise StoreFailed(f"the database cannot be used: {_sentence(error)}") from None
    except BaseException:
        database.close()
        raise
    return database


def _prepare(database: PostgresDatabase) -> None:
    """Create the tables if missing; several services may do so at the same time."""
    database.execute("BEGIN")
    try:
        database.execute("SELECT pg_advisory_xact_lock(7186203)")  # any number, but always the same
        if database.execute("SELECT to_regclass('schema_version')").fetchone()[0] is None:
            for statement in _statements(STEPS[0] + TABLES):
                database.execute(statement)
        found = database.execute("SELECT version FROM schema_version").fetchone()[0]
        for step in STEPS[found:]:
            for statement in _statements(step):
                database.execute(statement)
        if found < VERSION:
            database.execute("UPDATE schema_version SET version = ?", (VERSION,))
        database.execute("COMMIT")
    except BaseException:
        with suppress(psycopg.Error):
            database.execute("ROLLBACK")
        raise
    if found > VERSION:
        raise StoreFailed("the database was written by a newer qtide; update this one")


class PostgresStore(ThreadedStore):
    """The database of a service that leads, or waits to lead."""

    idle_limit = LEASE / 5

    def __init__(self, url: str) -> None:
        self._url = url
        self._term = 0
        self.deadline = 0.0
        self._fence = Fence()
        self._fence.start()
        connect(url).close()
        self._writing: PostgresDatabase | None = None
        self._reading: PostgresDatabase | None = PostgresDatabase(url)
        self._readers = {urgent: _reader(Reconnecting(url)) for urgent in (False, True)}
        self._closing = threading.Event()
        super().__init__()

    def take_lead(self, holder: str, url: str) -> bool:
        """Take the lead if nobody has it; return whether this service leads now."""
        began = time.monotonic()
        row = self.read(lambda db: db.execute(TAKE, (holder, url)).fetchone())
        if row is None:
            return False
        self._term = row["term"]
        self._renewed(began)
        return True

    def leader(self) -> tuple[str, str]:
        """The service that leads, or led last: its name and URL."""
        row = self.read(lambda db: db.execute("SELECT holder, url FROM leadership").fetchone())
        return row["holder"], row["url"]

    def commit(self, actions: Sequence[Action[Any]]) -> list[Outcome]:
        """Run the writes in one transaction, if this service still leads."""
        if not self._term:
            if actions:
                raise StoreFailed("this service does not lead yet; another one does")
            return []
        if self._writing is None:
            self._writing = PostgresDatabase(self._url)
        try:
            return self._together(self._writing, actions, apart=False)
        except psycopg.Error as error:
            self._writing.close()
            self._writing = None
            raise StoreFailed(f"the database cannot be written: {_sentence(error)}") from None

    def read(self, action: Action[Result]) -> Result:
        """Run a small query, at once; while the database is away, fail at once."""
        database = self._reading
        if database is None:
            raise StoreFailed("the database cannot be reached")
        try:
            return action(database)
        except GONE as error:
            self._reading = None
            database.close()
            threading.Thread(target=self._reconnect, daemon=True).start()
            raise StoreFailed(f"the database cannot be read: {_sentence(error)}") from None
        except psycopg.Error as error:
            raise StoreFailed(f"the database cannot be read: {_sentence(error)}") from None

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Run a query in a reader thread, where it does not block the event loop."""
        try:
            return await self._readers[urgent].look(action)
        except psycopg.Error as error:
            raise StoreFailed(f"the database cannot be read: {_sentence(error)}") from None

    async def add(self, action: Action[Any]) -> None:
        """Write rows that nobody else writes, whether this service leads or not."""
        await asyncio.to_thread(self._add, action)

    def _add(self, action: Action[Any]) -> None:
        database = PostgresDatabase(self._url)
        try:
            action(database)
        except psycopg.Error as error:
            raise StoreFailed(f"the database cannot be written: {_sentence(error)}") from None
        finally:
            database.close()

    def close(self) -> None:
        """Finish the writes requested so far, give up the lead, and close."""
        self._closing.set()
        super().close()
        with suppress(StoreFailed, psycopg.Error):
            self._writing = self._writing or PostgresDatabase(self._url)
            self._writing.execute(GIVE_UP, (self._term,))
        for database in (self._writing, self._reading, *self._readers.values()):
            if database is not None:
                database.close()
        self._fence.stop()

    def _together(
        self, database: PostgresDatabase, actions: Sequence[Action[Any]], *, apart: bool
    ) -> list[Outcome]:
        """Run the writes; if one fails, all again, with a savepoint before each."""
        began = time.monotonic()
        database.execute("BEGIN")
        held = database.execute(RENEW, (self._term,)).fetchone()
        if held is None:
            _depose()
        outcomes: list[Outcome] = []
        for action in actions:
            if apart:
                database.execute("SAVEPOINT before")
            try:
                outcomes.append((action(database), None))
            except GONE:
                raise
            except Exception as error:
                if not apart:
                    database.execute("ROLLBACK")
                    return self._together(database, actions, apart=True)
                database.execute("ROLLBACK TO before")
                outcomes.append((None, _failure(error)))
        try:
            database.execute("COMMIT")
        except GONE as error:
            if not self._was_made(held[0]):
                raise StoreFailed(f"the database lost a commit: {_sentence(error)}") from None
        self._renewed(began)
        return outcomes

    def _renewed(self, began: float) -> None:
        """Note a renewal of the lease that was asked for at `began`."""
        self.deadline = began + LEASE - MARGIN
        if not self._fence.renew(self.deadline):
            log.error("the process that watches the lease was lost; the service starts again")
            os._exit(DEPOSED)

    def _was_made(self, until: float) -> bool:
        """Ask the server, as soon as it is back, whether the renewal until then was committed."""
        end = time.monotonic() + UNCERTAIN
        while time.monotonic() < end:
            if self._closing.wait(POLL):  # nobody waits for an answer any more
                raise StoreFailed("the service stops while the database is away")
            with suppress(StoreFailed, psycopg.Error):
                self._writing = PostgresDatabase(self._url)
                found = self._writing.execute(OUTCOME).fetchone()
                if found["term"] != self._term:
                    _depose()
                return bool(found["until"] == until)
        log.error("nobody knows whether the last commit was made; the service starts again")
        os._exit(DEPOSED)

    def _reconnect(self) -> None:
        while not self._closing.wait(POLL):
            with suppress(StoreFailed):
                self._reading = PostgresDatabase(self._url)
                return


class Reconnecting:
    """A connection for queries that is made anew after it was lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: PostgresDatabase | None = None

    def execute(self, words: str, values: Any = (), /) -> Rows:
        """Run a query."""
        return self._tried(lambda database: database.execute(words, values))

    def executemany(self, words: str, values: Iterable[Any], /) -> None:
        """Run a statement once for each set of values."""
        self._tried(lambda database: database.executemany(words, values))

    def piece_of_answer(self, sequence: int, at: int, size: int) -> bytes:
        """Read a piece of a task's answer."""
        return self._tried(lambda database: database.piece_of_answer(sequence, at, size))

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()

    def _tried(self, query: Callable[[PostgresDatabase], Result]) -> Result:
        if self._database is None:
            self._database = PostgresDatabase(self._url)
        try:
            return query(self._database)
        except GONE:
            self._database.close()
            self._database = None
            raise


def _reader(connection: Reconnecting) -> Reader:
    return Reader(connection, connection.close)


def _failure(error: Exception) -> Exception:
    if isinstance(error, psycopg.IntegrityError):
        return AlreadyStored(_sentence(error))
    return ValueTooLarge(_sentence(error))


def _depose() -> NoReturn:
    """End the process at once: another service leads, and this one must not touch a device."""
    log.error("another service has taken over; this one ends")
    os._exit(DEPOSED)


def _sentence(error: Exception) -> str:
    """The first line of an error, which names no password."""
    return str(error).strip().partition("\n")[0]
