"""The queue of a node pool: tasks that wait for nodes, or for parts of nodes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import NamedTuple

from qtide.backends.clusters.cluster import Node
from qtide.core.resources import WHOLE, Needs, NodeKind, NodePart, nodes_filled
from qtide.core.world.world import Future


class TaskPlace(NamedTuple):
    """Where a task runs: a node and, unless the task takes all of it, the part that it has."""

    node: Node
    slot: NodePart | None


@dataclass(eq=False)
class Waiting:
    """A task waiting for `nodes` nodes at once, or for a part of one."""

    nodes: int
    granted: Future[list[TaskPlace]]
    needs: Needs = WHOLE
    arrived: int = 0
    passed: int = 0
    """Number of tasks that were started in front of it, although they came later or are smaller."""
    regroup: Future[None] | None = None
    """Background work that requests all the nodes together."""

    @property
    def is_part(self) -> bool:
        """Whether it shares a node with other tasks."""
        return self.nodes == 1 and not self.needs.whole


NOBODY: OrderedDict[Waiting, None] = OrderedDict()


class TaskQueue:
    """Waiting tasks: for whole nodes, first come, first served; for parts, the largest first."""

    def __init__(self, kind: NodeKind) -> None:
        self._kind = kind
        self._whole: OrderedDict[Waiting, None] = OrderedDict()
        self._parts: dict[Needs, OrderedDict[Waiting, None]] = {}
        """By needs, the largest first; each in order of arrival."""
        self._arrivals = count()

    def __bool__(self) -> bool:
        return bool(self._whole) or self.has_parts

    def __contains__(self, waiting: Waiting) -> bool:
        return waiting in self._group(waiting)

    @property
    def has_parts(self) -> bool:
        """Whether a task waits for a part of a node."""
        return any(self._parts.values())

    @property
    def first(self) -> Waiting | None:
        """The task for whole nodes that is next in line."""
        return next(iter(self._whole), None)

    @property
    def oldest_part(self) -> Waiting | None:
        """The task for a part of a node that has waited longest."""
        return min(self.largest_parts(), key=lambda each: each.arrived, default=None)

    def add(self, waiting: Waiting) -> bool:
        """Append a task; return whether no task with the same needs waited before."""
        waiting.arrived = next(self._arrivals)
        if waiting.is_part and waiting.needs not in self._parts:
            groups = [*self._parts.items(), (waiting.needs, OrderedDict())]
            self._parts = dict(sorted(groups, key=lambda each: -self._kind.share(each[0])))
        group = self._group(waiting)
        group[waiting] = None
        return len(group) == 1

    def remove(self, waiting: Waiting) -> None:
        """Remove a task from the queue."""
        del self._group(waiting)[waiting]

    def largest_parts(self) -> Iterator[Waiting]:
        """The first task for each part, the largest part first."""
        for group in self._parts.values():
            if group:
                yield next(iter(group))

    def singles(self, most: int) -> list[Waiting]:
        """Leading tasks that are to ask for a node each, at most `most`."""
        whole = list(islice(takewhile(lambda each: each.nodes == 1, self._whole), most))
        shares = Counter[float]()
        for needs, group in self._parts.items():
            shares[self._kind.share(needs)] += len(group)
        more = nodes_filled(shares, most - len(whole)) if most > len(whole) else 0
        parts = (each for group in self._parts.values() for each in group)
        return [*whole, *islice(parts, more)]

    def everybody(self) -> list[Waiting]:
        """All waiting tasks."""
        return [*self._whole, *(each for group in self._parts.values() for each in group)]

    def _group(self, waiting: Waiting) -> OrderedDict[Waiting, None]:
        return self._parts.get(waiting.needs, NOBODY) if waiting.is_part else self._whole
