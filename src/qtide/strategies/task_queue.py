"""The tasks of a job that wait for nodes. No question asked for a task grows with how many wait."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice, takewhile

from qtide.clusters.cluster import Node
from qtide.world.world import Future


@dataclass(eq=False)
class Waiting:
    """A task that needs so many nodes at once."""

    nodes: int
    granted: Future[list[Node]]
    regroup: Future[None] | None = None
    """What sees to it that as many nodes are there together."""


class TaskQueue:
    """First come, first served."""

    def __init__(self) -> None:
        self._all: OrderedDict[Waiting, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __contains__(self, waiting: Waiting) -> bool:
        return waiting in self._all

    @property
    def first(self) -> Waiting | None:
        """Who is next."""
        return next(iter(self._all), None)

    def add(self, waiting: Waiting) -> None:
        """Wait behind all others."""
        self._all[waiting] = None

    def remove(self, waiting: Waiting) -> None:
        """Wait no longer."""
        del self._all[waiting]

    def singles(self, most: int) -> list[Waiting]:
        """The first ones, as long as they are content with one node."""
        return list(islice(takewhile(lambda each: each.nodes == 1, self._all), most))

    def everybody(self) -> list[Waiting]:
        """All of them, in order."""
        return list(self._all)
