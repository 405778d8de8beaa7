"""The forecast: what a job's own past says about what comes next, and when.

Programs loop: the phase that followed a phase last time will most likely follow it again, and
take about as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from qtide.programs.phase import Classical, Phase
from qtide.programs.replay import asked
from qtide.world.world import World

HORIZON = 8
"""How many quantum phases in a row are looked past."""


class Need(NamedTuple):
    """A classical phase to come: how many seconds after the present one, and its single nodes."""

    after: float
    nodes: int
    seconds: float


class Forecast:
    """Learns phases by what they ask for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._followed: dict[str, Phase] = {}
        self._seconds: dict[str, float] = {}
        self._last: dict[str, str] = {}

    @contextmanager
    def during(self, phase: Phase, key: str) -> Iterator[None]:
        """Learn from a phase: what it came after, and how long it took."""
        branch, name = key.rpartition(".")[0], asked(phase)
        if branch in self._last:
            self._followed[self._last[branch]] = phase
        self._last[branch] = name
        began = self._world.now()
        yield
        self._seconds[name] = self._world.now() - began

    def seconds(self, phase: Phase) -> float:
        """How long such a phase took last time; 0 if there was none."""
        return self._seconds.get(asked(phase), 0.0)

    def next_need(self, phase: Phase) -> Need | None:
        """The next classical phase after this one, as far as the past tells."""
        after = 0.0
        for _ in range(HORIZON):
            following = self._followed.get(asked(phase))
            if following is None:
                return None
            if isinstance(following, Classical):
                singles = sum(task.nodes == 1 for task in following.tasks)
                return Need(after, singles, self.seconds(following))
            after += self.seconds(following)
            phase = following
        return None
