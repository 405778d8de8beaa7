"""The store of a service: one SQLite file, written by a thread that commits many writes at a time.

A commit costs about as much for a hundred rows as for one.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from qtide.service.store import Action, Result, Store, StoreFailed, commit, connect, tell

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
