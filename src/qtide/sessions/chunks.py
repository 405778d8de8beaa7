"""Chunks: short calls go to a node several at a time, since each trip there costs time as well.

How long a function takes is learnt from its first calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from qtide.sessions.call import Call

TRIP = 0.05
"""Seconds that a chunk should take: many times as long as the trip to a node."""
WORTH = 0.005
"""Seconds below which a chunk is not divided further, whoever is idle meanwhile."""
ROUNDS = 4
"""How many chunks each node should get at least, so that all end at about the same time."""
PROBES = 2
"""How many calls each node gets to find out."""
MOST = 1000
"""The most calls of a chunk."""


class Chunks:
    """Knows how long calls of each function take."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._seconds: dict[str, float] = {}

    def learn(self, name: str, seconds: float) -> None:
        """A call took so long; the latest count most."""
        known = self._seconds.get(name, seconds)
        self._seconds[name] = (known + seconds) / 2

    def probes(self, calls: Sequence[Call]) -> int:
        """How many calls are to be made first, one by one; 0 if there is nothing to find out."""
        few = len(calls) <= PROBES * ROUNDS * self._nodes
        return 0 if few or calls[-1].name in self._seconds else PROBES * self._nodes

    def divided(self, calls: Sequence[Call], least: int = 1) -> list[Sequence[Call]]:
        """The calls in chunks that are neither too small nor too few."""
        size = max(least, self._size(calls))
        return [calls[start : start + size] for start in range(0, len(calls), size)]

    def _size(self, calls: Sequence[Call]) -> int:
        longest = max(self._seconds.get(name, TRIP) for name in {each.name for each in calls})
        fair = ceil(len(calls) / (ROUNDS * self._nodes))
        worth, most = (int(each / max(longest, 1e-6)) for each in (WORTH, TRIP))
        return max(1, min(MOST, max(fair, worth), most))
