"""How long a device takes that has no timing profile: learnt from what it did.

Without a guess it would seem to take no time, and be given far too much in advance.
"""

from __future__ import annotations

FIRST = 1.0
"""Seconds of a circuit while nothing is known: long enough that one task is given at a time."""
WEIGHT = 0.2
"""Of the last task, against all before it."""


class Estimate:
    """The mean seconds of a circuit, the latest counting most."""

    def __init__(self) -> None:
        self._circuit_s = FIRST
        self._known = False

    def seconds(self, circuits: int) -> float:
        """What a batch should take."""
        return self._circuit_s * circuits

    def learn(self, circuits: int, seconds: float) -> None:
        """Take in what one took."""
        last = seconds / circuits
        weight = WEIGHT if self._known else 1.0
        self._circuit_s += weight * (last - self._circuit_s)
        self._known = True
