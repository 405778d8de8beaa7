"""The store of a service: one SQLite file, written by a thread that commits many writes at a time.

A commit costs about as much for a hundred rows as for one.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from qtide.service.store import Action, Result, Store, StoreFailed, commit, connect, tell

MOST_AT_ONCE = 256
"""The most writes that share a commit."""

Write = tuple[Action[Any], asyncio.Future[Any]]


class FileStore(Store):
    """One SQLite file, for the service and for the commands on its host."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pending: SimpleQueue[Write | None] = SimpleQueue()
        self._connection = connect(file)
        self._reading = connect(file)
        self._writer = threading.Thread(target=self._write, name="store", daemon=True)
        self._writer.start()

    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is on disk."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.put((action, answer))
        return await answer

    def read(self, action: Action[Result]) -> Result:
        """Look something up; an indexed query takes about ten microseconds."""
        return action(self._reading)

    def close(self) -> None:
        """Finish the writes requested so far, and close the file."""
        self._pending.put(None)
        self._writer.join()
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
            outcomes = commit(self._connection, (action for action, _ in writes))
        except sqlite3.Error as error:
            failure = StoreFailed(f"{self._file} cannot be written: {error}")
            outcomes = [(None, failure) for _ in writes]
        answers = [answer for _, answer in writes]
        with suppress(RuntimeError):  # the loop is closed: no caller is waiting
            answers[0].get_loop().call_soon_threadsafe(tell, answers, outcomes)
