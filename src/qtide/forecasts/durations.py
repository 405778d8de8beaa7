"""Durations: how long things take that happen again and again, and how long those under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

Place = tuple[str, int]
"""The label of a phase, and the number of one of its tasks."""

MOST = 2000
"""How many durations are remembered for later runs, the last ones."""


class Durations:
    """The last duration of each task, by its place."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last: dict[Place, float] = {}
        self._under_way: dict[Place, float | None] = {}

    def last(self, key: Place) -> float:
        """How long it took last time; 0 if it never ended."""
        return self._last.get(key, 0.0)

    def known(self, key: Place) -> float | None:
        """The same, or None if it never ended."""
        return self._last.get(key)

    def estimate(self, key: Place) -> float | None:
        """The same; of what never ended and is under way, twice as long as it has taken so far."""
        began = self._under_way.get(key)
        return self._last.get(key, None if began is None else 2 * (self._now() - began))

    def expect(self, keys: Iterable[Place]) -> None:
        """These are to be done, and have not begun."""
        self._under_way |= dict.fromkeys(keys)

    def begin(self, key: Place) -> None:
        """It begins now, maybe again."""
        self._under_way[key] = self._now()

    def learn(self, key: Place, besides: float = 0.0) -> None:
        """It has just ended well: so long it takes, without what it was not busy with itself."""
        began = self._under_way.get(key)
        if began is not None:
            self._last[key] = max(0.0, self._now() - began - besides)

    def end(self, key: Place) -> None:
        """It is no longer to be done, whatever became of it."""
        self._under_way.pop(key, None)

    def remaining(self) -> float:
        """How long until all that is to be done should be, if it all goes on at once.

        What is done for the first time lasts as long again as it has until now.
        """
        now, last, longest = self._now(), self._last, 0.0
        for key, began in self._under_way.items():
            elapsed = 0.0 if began is None else now - began
            left = last.get(key, 2 * elapsed) - elapsed
            longest = max(longest, left)
        return longest

    def as_json(self) -> list[list[Any]]:
        """The last durations of what ended."""
        newest = islice(reversed(self._last.items()), MOST)
        return [[label, number, round(seconds, 6)] for (label, number), seconds in newest]

    def recall(self, known: Iterable[Any]) -> None:
        """Begin with the durations of an earlier run."""
        for label, number, seconds in known:
            self._last[str(label), int(number)] = float(seconds)
