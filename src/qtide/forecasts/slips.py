"""Slips: by how much the waits in a queue have exceeded what its content said.

Who stands in a queue where others may come in before it waits for longer than those before it take.
How much longer is best learnt from those that were served lately.
"""

from __future__ import annotations

from collections import deque

SEEN = 16
"""How many past waits count."""


class Slips:
    """Compares waits as they were expected with those that came of them."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=SEEN)

    def add(self, expected: float, waited: float) -> None:
        """A wait is over."""
        self._seen.append((expected, waited))

    def corrected(self, expected: float) -> float:
        """How long a wait should really be."""
        before = sum(each for each, _ in self._seen)
        after = sum(each for _, each in self._seen)
        return expected * max(1.0, after / before) if before else expected
