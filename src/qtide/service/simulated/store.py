"""A store in memory whose commits take virtual time: the same rows, the same order, no disk."""

from __future__ import annotations

import sqlite3
from asyncio import CancelledError
from typing import Any

from qtide.service.store import (
    Action,
    Outcome,
    Result,
    Store,
    StoreFailed,
    commit,
    in_memory,
    tell,
)
from qtide.world import Future, World

Write = tuple[Action[Any], Future[Any] | None]

COMMIT_S = 0.0004
"""Seconds that a commit takes, as on a current disk."""


class SimulatedStore(Store):
    """Writes share commits, in the order in which they came, as in a file."""

    def __init__(
        self,
        world: World,
        commit_s: float = COMMIT_S,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        self._world = world
        self._commit_s = commit_s
        self._connection = connection or in_memory()
        self.broken = False
        """Whether nothing can be written, as on a full disk."""
        self._pending: list[Write] = []
        self._writing: list[Write] = []
        self._committing = False
        self._cut_off = False

    def reopened(self) -> SimulatedStore:
        """As after a power cut: committed rows remain, and pending writes are lost."""
        self._cut_off = True
        _cancel(self._pending)
        return SimulatedStore(self._world, self._commit_s, self._connection)

    async def write(self, action: Action[Result]) -> Result:
        """Return the result of `action` once it is committed."""
        if self._cut_off:
            raise CancelledError
        answer: Future[Result] = self._world.future()
        self._put((action, answer))
        return await answer

    def post(self, action: Action[Any]) -> None:
        """Write with the next commit."""
        if not self._cut_off:
            self._put((action, None))

    def read(self, action: Action[Result]) -> Result:
        """Look something up."""
        return action(self._connection)

    async def look(self, action: Action[Result], *, urgent: bool = False) -> Result:
        """Look something up; here that takes no time."""
        return action(self._connection)

    def close(self) -> None:
        """Finish the writes requested so far, and keep the rows for the next service."""
        writes, self._pending = self._writing + self._pending, []
        self._writing = []
        if writes and not self._cut_off:
            tell((answer for _, answer in writes), self._outcomes(writes))

    def _put(self, write: Write) -> None:
        self._pending.append(write)
        if not self._committing:
            self._committing = True
            self._world.start(self._commit())

    async def _commit(self) -> None:
        """Commit halfway: a power cut may come before the commit, or before its acknowledgement."""
        while self._pending and not self._cut_off:
            self._writing, self._pending = self._pending, []
            await self._world.sleep(self._commit_s / 2)
            if self._cut_off:
                _cancel(self._writing)
                return
            writes, self._writing = self._writing, []
            outcomes = self._outcomes(writes)
            await self._world.sleep(self._commit_s / 2)
            if self._cut_off:
                _cancel(writes)
            else:
                tell((answer for _, answer in writes), outcomes)
        self._committing = False

    def _outcomes(self, writes: list[Write]) -> list[Outcome]:
        if self.broken:
            return [(None, StoreFailed("the store is full")) for _ in writes]
        return commit(self._connection, [action for action, _ in writes])


def _cancel(writes: list[Write]) -> None:
    for _, answer in writes:
        if answer is not None:
            answer.cancel()
