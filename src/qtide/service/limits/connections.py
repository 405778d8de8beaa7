"""Connections: how many each peer and all of them have, and which one gives way if there are more.

A connection that never showed a valid token gives way to a new one, the oldest first: so somebody
who only holds connections open keeps nobody out, not even from the same address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol


class Closable(Protocol):
    """A connection, as far as it matters here."""

    @property
    def peer_name(self) -> str:
        """Whose it is."""

    def give_way(self) -> None:
        """Close at once."""

    def look(self, now: float) -> None:
        """End it if its time is up."""


class Connections:
    """The open connections by peer."""

    def __init__(
        self, each: int, total: int, refused: Callable[[int, str], None] = lambda *_: None
    ) -> None:
        self._each = each
        self._total = total
        self._open: Counter[str] = Counter()
        self._unproven: dict[str, dict[Closable, None]] = {}
        self._all: dict[Closable, None] = {}
        self.refused = refused
        """Told of every connection that is refused or ended, with a status and a word."""

    def adopt(self, each: int, total: int) -> None:
        """Allow other numbers from now on; those that are open stay."""
        self._each = each
        self._total = total

    def __iter__(self) -> Iterator[Closable]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def open(self, connection: Closable) -> bool:
        """Whether a new connection may stay; if there are too many, an idle one gives way."""
        name = connection.peer_name
        if self._open[name] >= self._each and not self._evict(name):
            return False
        if len(self._all) >= self._total and not self._evict(self._largest()):
            return False
        self._all[connection] = None
        self._open[name] += 1
        self._unproven.setdefault(name, {})[connection] = None
        return True

    def prove(self, connection: Closable) -> None:
        """It showed a valid token: it no longer gives way."""
        self._unproven.get(connection.peer_name, {}).pop(connection, None)

    def close(self, connection: Closable) -> None:
        """It is closed."""
        if connection not in self._all:
            return
        del self._all[connection]
        name = connection.peer_name
        self._open[name] -= 1
        self.prove(connection)
        if not self._open[name]:
            del self._open[name]
            self._unproven.pop(name, None)

    def _largest(self) -> str:
        """The peer with the most connections that may give way."""
        return max(self._unproven, key=lambda name: len(self._unproven[name]), default="")

    def _evict(self, name: str) -> bool:
        for oldest in self._unproven.get(name, {}):
            self.close(oldest)
            oldest.give_way()
            self.refused(503, "gave_way")
            return True
        return False
