"""How long tasks take whose payload does not say so: learnt from earlier ones of about their size.

Without an estimate a device would seem to take no time, and get far too many tasks in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

from qtide.service.extent import Extent

FIRST = 1.0
"""Seconds of a circuit while nothing is known: so long that the worker gets one task at a time."""
WEIGHT = 0.2
"""The weight of the last task, against all before it."""
ENOUGH = 3
"""Tasks of a size after which its longest time is trusted, times SAFETY."""
SAFETY = 2.0


@dataclass
class Known:
    """What tasks of one extent took."""

    mean: float
    longest: float
    tasks: int = 1

    def learn(self, seconds: float) -> None:
        """One more took so long."""
        self.mean += WEIGHT * (seconds - self.mean)
        self.longest = max(seconds, self.longest)
        self.tasks += 1


class Estimate:
    """What is known by extent; what is not follows from the most similar that is."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._known: dict[Extent, Known] = {}

    def seconds(self, extent: Extent, circuits: int) -> float:
        """How long a task should take."""
        if not self._known:
            return min(FIRST * circuits, self._limit)
        nearest = min(self._known, key=extent.distance)
        power = max(-60, min(60, extent.beyond(nearest)))
        return float(min(self._known[nearest].mean * 2.0**power, self._limit))

    def longest(self, extent: Extent | None) -> float:
        """How long it takes at worst; of an extent that was hardly seen, the device's limit."""
        known = self._known.get(extent) if extent is not None else None
        if known is None or known.tasks < ENOUGH:
            return self._limit
        return min(SAFETY * known.longest, self._limit)

    def adopt(self, other: Estimate) -> None:
        """Know what another one has learnt."""
        self._known |= other._known

    def learn(self, extent: Extent, seconds: float) -> None:
        """Learn from how long one took."""
        if extent in self._known:
            self._known[extent].learn(seconds)
        else:
            self._known[extent] = Known(seconds, seconds)
