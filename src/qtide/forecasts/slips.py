"""Slips: by how much the waits in a queue have exceeded what its content said.

Who stands in a queue where others may come in before it waits for longer than those before it take.
How much longer is best learnt from its own waits, and at first from those of everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

SEEN = 16
"""How many past waits count."""


class Slips:
    """Compares waits as they were expected with those that came of them."""

    def __init__(self) -> None:
        self._of_all = _Waits()
        self._own: dict[Hashable, _Waits] = {}

    def add(self, who: Hashable, expected: float, waited: float) -> None:
        """A wait is over."""
        self._of_all.add(expected, waited)
        self._own.setdefault(who, _Waits()).add(expected, waited)

    def corrected(self, who: Hashable, expected: float) -> float:
        """How long a wait should really be."""
        return expected * self._own.get(who, self._of_all).factor()

    def forget(self, who: Hashable) -> None:
        """Nobody will ask for its own waits again."""
        self._own.pop(who, None)


class _Waits:
    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=SEEN)

    def add(self, expected: float, waited: float) -> None:
        self._seen.append((expected, waited))

    def factor(self) -> float:
        expected = sum(each for each, _ in self._seen)
        waited = sum(each for _, each in self._seen)
        return max(1.0, waited / expected) if expected else 1.0
