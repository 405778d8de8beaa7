"""The queue of a node pool: tasks that wait for nodes, or for parts of nodes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from typing import Any, NamedTuple

from qtide.backends.clusters.cluster import Node
from qtide.core.forecasts import Place
from qtide.core.resources import WHOLE, Needs, NodeKind, NodePart, nodes_filled
from qtide.core.world.world import Future
from qtide.programs.command import CommandTask
from qtide.programs.phase import Task


def may_join(task: Task[Any], needs: Needs) -> bool:
    """Whether a task may run in a batch: nothing but the whole process can be limited or killed."""
    plain = type(task) in (Task, CommandTask) and task.nodes == 1 and task.most is None
    limited = task.limit is not None or needs.memory is not None
    return plain and not task.mpi and not limited and not needs.whole


class TaskPlace(NamedTuple):
    """Where a task runs: a node and, unless the task takes all of it, the part that it has."""

    node: Node
    slot: NodePart | None


@dataclass(eq=False)
class Waiting:
    """A task waiting for its nodes, all at once, or for a part of one."""

    task: Task[Any]
    place: Place
    granted: Future[list[TaskPlace]]
    """Where it runs; nowhere if it ran in another task's batch."""
    needs: Needs = WHOLE
    joins: bool = False
    """Whether it may run in a batch, with other tasks in one process, one after the other."""
    batch: list[Waiting] = field(default_factory=list)
    """Other tasks that run with it, in the same part of the node."""
    result: Any = None
    """What it returned in another task's batch."""
    arrived: int = 0
    passed: int = 0
    """Number of tasks that were started in front of it, although they came later or are smaller."""
    regroup: Future[None] | None = None
    """Background work that requests all the nodes together."""
    nodes: int = field(init=False)
    """The number of nodes that it needs at once."""
    is_part: bool = field(init=False)
    """Whether it shares a node with other tasks."""

    def __post_init__(self) -> None:
        self.nodes = self.task.nodes
        self.is_part = self.nodes == 1 and not self.needs.whole

    def end(self, result: Any, error: Exception | None) -> None:
        """End the wait of a task that ran in another one's batch, unless it was cancelled."""
        self.result = result
        if self.granted.done():
            return
        if error is None:
            self.granted.set_result([])
        else:
            self.granted.set_exception(error)

    @property
    def has_places(self) -> bool:
        """Whether it was granted what it waits for."""
        done = self.granted.done() and not self.granted.cancelled()
        return done and self.granted.exception() is None


class Load:
    """What the unfinished tasks of a pool can use."""

    def __init__(self, kind: NodeKind, default: Needs, most: int) -> None:
        self._kind = kind
        self._default = default
        """What a task needs that says nothing."""
        self._most = most
        self._whole = self._whole_singles = 0
        """Whole nodes, and those of them that are for tasks on one node."""
        self._shares: Counter[float] = Counter()
        """Parts of nodes: how many tasks need so much."""
        self.growth = 0
        """How many nodes the malleable tasks can use beside those that they begin on."""

    def __bool__(self) -> bool:
        return bool(self._whole or self._shares)

    @property
    def nodes(self) -> int:
        """Number of nodes that they can use."""
        return self._whole + self._parts

    @property
    def singles(self) -> int:
        """The same for tasks that need one node, or a part of one."""
        return self._whole_singles + self._parts

    @property
    def _parts(self) -> int:
        return nodes_filled(self._shares, self._most) if self._shares else 0

    def count(self, task: Task[Any], number: int) -> None:
        """Count a task as unfinished (1), or as finished (-1)."""
        if task.malleable and task.most is not None:
            self.growth += number * (task.most - task.nodes)
        needs = task.needs_of(self._default)
        if task.nodes > 1 or needs.whole:
            self._whole += number * task.nodes
            self._whole_singles += number * (task.nodes == 1)
            return
        share = self._kind.share(needs)
        self._shares[share] += number
        if not self._shares[share]:
            del self._shares[share]


PASSES = 64
"""How many tasks may be started in front of one before a node is kept free for it."""
NOBODY: OrderedDict[Waiting, None] = OrderedDict()


class TaskQueue:
    """Waiting tasks: for whole nodes, first come, first served; for parts, the largest first.

    It knows the nodes that tasks share, and says which task is next for what is free of them.
    """

    def __init__(self, kind: NodeKind) -> None:
        self._kind = kind
        self._whole: OrderedDict[Waiting, None] = OrderedDict()
        self._parts: dict[Needs, OrderedDict[Waiting, None]] = {}
        """By needs, the largest first; each in order of arrival."""
        self._arrivals = count()
        self.shared: dict[Node, None] = {}
        """Nodes with tasks on parts of them."""
        self._kept_free: tuple[Node, Waiting] | None = None
        """A shared node that takes no other task until it has room for this one."""

    def __bool__(self) -> bool:
        return bool(self._whole or (self._parts and any(self._parts.values())))

    def __contains__(self, waiting: Waiting) -> bool:
        return waiting in self._group(waiting)

    @property
    def has_parts(self) -> bool:
        """Whether a task waits for a part of a node."""
        return bool(self._parts) and any(self._parts.values())

    @property
    def first(self) -> Waiting | None:
        """The task for whole nodes that is next in line."""
        return next(iter(self._whole)) if self._whole else None

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

    def remove(self, waiting: Waiting) -> Node | None:
        """Remove a task from the queue; return the node that was kept free for it, if any."""
        del self._group(waiting)[waiting]
        if self._kept_free is None or self._kept_free[1] is not waiting:
            return None
        node, self._kept_free = self._kept_free[0], None
        return node

    def forget(self, node: Node) -> None:
        """Forget a node that is no longer held."""
        self.shared.pop(node, None)
        if self._kept_free is not None and self._kept_free[0] is node:
            self._kept_free = None

    def room_for(self, waiting: Waiting) -> Node | None:
        """The fullest of the shared nodes on which a task may start now."""
        room = [node for node in self.shared if node.room.fits(waiting.needs)]
        fullest = sorted(room, key=lambda each: len(each.room.cores))
        return next((node for node in fullest if self._may_have(waiting, node)), None)

    def fitting(self, node: Node) -> Waiting | None:
        """The largest task that may start now in what is free of a node."""
        for each in self.largest_parts():
            if node.room.fits(each.needs) and self._may_have(each, node):
                return each
        return None

    def _may_have(self, waiting: Waiting, node: Node) -> bool:
        """Whether a task may start in front of those that wait for more than is free.

        So that they do not wait forever, that happens `PASSES` times; then a node is kept free.
        """
        if self._kept_free is not None and self._kept_free[0] is node:
            return self._kept_free[1] is waiting
        first = self.first
        if first is not None and first.arrived < waiting.arrived:
            if not node.room.tasks or first.passed >= PASSES:
                return False
            first.passed += 1
        larger = next(self.largest_parts(), waiting)
        if larger.needs != waiting.needs and self._kept_free is None:
            larger.passed += 1
            if larger.passed > PASSES:
                roomiest = max(self.shared, key=lambda each: len(each.room.cores), default=node)
                self._kept_free = (roomiest, larger)
                return roomiest is not node
        return True

    def largest_parts(self) -> Iterator[Waiting]:
        """The first task for each part, the largest part first."""
        for group in self._parts.values():
            if group:
                yield next(iter(group))

    def alike(self, waiting: Waiting) -> Collection[Waiting]:
        """Tasks for a part of a node with the same needs, in the order of their arrival."""
        return self._parts.get(waiting.needs, NOBODY)

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
