"""Durations: how long things take that happen again and again, and how long those under way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable


class Durations:
    """The last duration of each thing, by a key of the caller's."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: dict[Hashable, float] = {}
        self._under_way: dict[Hashable, float | None] = {}

    def last(self, key: Hashable) -> float:
        """How long it took last time; 0 if it never ended."""
        return self._last.get(key, 0.0)

    def known(self, key: Hashable) -> float | None:
        """The same, or None if it never ended."""
        return self._last.get(key)

    def expect(self, keys: Iterable[Hashable]) -> None:
        """These are to be done, and have not begun."""
        self._under_way |= dict.fromkeys(keys)

    def begin(self, key: Hashable) -> None:
        """It begins now, maybe again."""
        self._under_way[key] = self._now()

    def learn(self, key: Hashable, besides: float = 0.0) -> None:
        """It has just ended well: so long it takes, without what it was not busy with itself."""
        began = self._under_way.get(key)
        if began is not None:
            self._last[key] = max(0.0, self._now() - began - besides)

    def end(self, key: Hashable) -> None:
        """It is no longer to be done, whatever became of it."""
        self._under_way.pop(key, None)

    def remaining(self) -> float:
        """How long until all that is to be done should be, if it all goes on at once.

        What is done for the first time lasts as long again as it has until now.
        """
        now, left = self._now(), [0.0]
        for key, began in self._under_way.items():
            elapsed = 0.0 if began is None else now - began
            left.append(max(0.0, self._last.get(key, 2 * elapsed) - elapsed))
        return max(left)
