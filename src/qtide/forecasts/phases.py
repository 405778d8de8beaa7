"""Phases: what a job's own past says about what comes next, and when.

Programs loop: the phase that followed a phase last time will most likely follow it again, and
take about as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

WIDEST = 2000
"""Of a phase with more tasks than this, a later run is not told."""
HORIZON = 8
"""How many quantum phases in a row are looked past."""


class Shape(NamedTuple):
    """What is known of a phase beforehand: what it asks for, and which tasks need one node."""

    name: str
    label: str = ""
    singles: tuple[int, ...] = ()
    quantum: bool = False


class Need(NamedTuple):
    """A classical phase to come, and how many seconds after the present one."""

    after: float
    shape: Shape


class Phases:
    """Learns phases by what they ask for."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._followed: dict[str, Shape] = {}
        self._seconds: dict[str, float] = {}
        self._last: dict[str, str] = {}
        self._classical = Shape("")

    @contextmanager
    def during(self, shape: Shape, key: str) -> Iterator[None]:
        """Learn from a phase: what it came after, and how long it took."""
        branch = key.rpartition(".")[0]
        if branch in self._last:
            self._followed[self._last[branch]] = shape
        self._last[branch] = shape.name
        if not shape.quantum:
            self._classical = shape
        began = self._now()
        yield
        self._seconds[shape.name] = self._now() - began

    def latest(self) -> Shape:
        """The classical phase that began last; one without tasks if there was none."""
        return self._classical

    def next_need(self, shape: Shape) -> Need | None:
        """The next classical phase after this one, as far as the past tells."""
        after = 0.0
        for _ in range(HORIZON):
            following = self._followed.get(shape.name)
            if following is None:
                return None
            if not following.quantum:
                return Need(after, following)
            after += self._seconds.get(following.name, 0.0)
            shape = following
        return None

    def as_json(self) -> dict[str, Any]:
        """What followed what, and how long phases took."""
        followed = {
            name: shape for name, shape in self._followed.items() if len(shape.singles) <= WIDEST
        }
        return {"followed": followed, "seconds": self._seconds}

    def recall(self, known: Mapping[str, Any]) -> None:
        """Begin with what followed what in an earlier run."""
        for before, (name, label, singles, quantum) in known["followed"].items():
            self._followed[before] = Shape(name, label, tuple(singles), quantum)
        self._seconds |= known["seconds"]
