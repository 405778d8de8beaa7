"""How long a device without a timing profile takes: learnt from its earlier tasks.

Without an estimate it would seem to take no time, and get far too many tasks in advance.
"""

from __future__ import annotations

FIRST = 1.0
"""Seconds of a circuit while nothing is known: so long that the worker gets one task at a time."""
WEIGHT = 0.2
"""The weight of the last task, against all before it."""


class Estimate:
    """The mean seconds of a circuit, the latest counting most."""

    def __init__(self) -> None:
        self._circuit_s = FIRST
        self._known = False

    def seconds(self, circuits: int) -> float:
        """How long a batch should take."""
        return self._circuit_s * circuits

    def learn(self, circuits: int, seconds: float) -> None:
        """Learn from how long one took."""
        last = seconds / circuits
        weight = WEIGHT if self._known else 1.0
        self._circuit_s += weight * (last - self._circuit_s)
        self._known = True
