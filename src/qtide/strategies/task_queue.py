"""The queue of a node pool: tasks that wait for nodes or parts of them, and the nodes for them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice, takewhile
from operator import attrgetter
from typing import Any, NamedTuple

from qtide.backends.clusters.cluster import Node
from qtide.core.forecasts import Place
from qtide.core.resources import ROUNDING, WHOLE, Needs, NodeKind, NodePart, nodes_filled
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
    requested: bool = False
    """Whether nodes for it alone are on their way, so that others need not wait behind it."""
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
        self._growth = 0
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
    def grown(self) -> int:
        """Number of nodes that they can use if the malleable ones grow."""
        return self.nodes + self._growth

    @property
    def _parts(self) -> int:
        return nodes_filled(self._shares, self._most) if self._shares else 0

    def count(self, task: Task[Any], number: int) -> None:
        """Count a task as unfinished (1), or as finished (-1)."""
        if task.malleable and task.most is not None:
            self._growth += number * (task.most - task.nodes)
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


@dataclass(eq=False)
class PartGroup:
    """Waiting tasks that need the same part of a node."""

    key: tuple[float, int]
    """By which the largest part comes first, and among equal ones that of an earlier task."""
    tasks: OrderedDict[Waiting, None] = field(default_factory=OrderedDict)
    """In order of arrival."""


class TaskQueue:
    """Waiting tasks: for whole nodes, first come, first served; for parts, the largest first.

    It knows the nodes that are idle or shared, and grants what is free of them to the next task.
    """

    def __init__(
        self, kind: NodeKind, join: Callable[[Waiting, Collection[Waiting]], list[Waiting]]
    ) -> None:
        """`join` chooses the tasks that run in a batch with a first one, of those like it."""
        self._kind = kind
        self._join = join
        self.idle: deque[Node] = deque()
        """Nodes without a task."""
        self._whole: OrderedDict[Waiting, None] = OrderedDict()
        self._parts: dict[Needs, PartGroup] = {}
        self._by_size: list[PartGroup] = []
        """The same groups; tasks may all need different parts, so it is kept in order."""
        self._arrivals = count()
        self._shared: dict[Node, None] = {}
        """Nodes with tasks on parts of them."""
        self._kept_free: tuple[Node, Waiting] | None = None
        """A shared node that takes no other task until it has room for this one."""

    def __bool__(self) -> bool:
        return bool(self._whole or self._by_size)

    def __contains__(self, waiting: Waiting) -> bool:
        return waiting in self._group(waiting)

    @property
    def first(self) -> Waiting | None:
        """The task for whole nodes that is next in line; last, one that has requested its own."""
        first = next((each for each in self._whole if not each.requested), None)
        return first or next((each for each in self._whole if each.nodes <= len(self.idle)), None)

    @property
    def leading(self) -> Waiting | None:
        """The task that is next in line, for whole nodes if there is one."""
        return self.first or next(self._largest_parts(), None)

    def add(self, waiting: Waiting) -> None:
        """Append a task, and start it if there is room for it and nobody goes first."""
        waiting.arrived = next(self._arrivals)
        if waiting.is_part and waiting.needs not in self._parts:
            new = PartGroup((-self._kind.share(waiting.needs), waiting.arrived))
            self._parts[waiting.needs] = new
            insort(self._by_size, new, key=_size)
        group = self._group(waiting)
        group[waiting] = None
        if waiting.is_part:
            if len(group) > 1:  # it waits behind its like
                return
            if (node := self._room_for(waiting)) is not None:
                self._grant(waiting, [node])
        self.match()

    def remove(self, waiting: Waiting) -> None:
        """Remove a task that will not run; a node that was kept free for it takes others."""
        kept_free = self._take_out(waiting)
        if kept_free is not None:
            self._fill(kept_free)

    def offer(self, node: Node) -> bool:
        """Start tasks on what is free of a node; return whether it was free as a whole."""
        if node.room.tasks:
            self._fill(node)
            return False
        self._shared.pop(node, None)
        self.idle.append(node)
        self.match()
        return True

    def forget(self, node: Node) -> None:
        """Forget a node that is no longer held."""
        self._shared.pop(node, None)
        if node in self.idle:
            self.idle.remove(node)
        if self._kept_free is not None and self._kept_free[0] is node:
            self._kept_free = None

    def match(self) -> None:
        """Grant idle nodes to waiting tasks; whole nodes and parts in the order of arrival."""
        while self.idle and self:
            first = self.first
            if first is None or self._has_part_before(first):
                node = self.idle[0]
                self._fill(node)
                if node in self.idle:
                    return
            elif len(self.idle) >= first.nodes:
                self._grant(first, [self.idle.popleft() for _ in range(first.nodes)])
            else:
                return

    def _fill(self, node: Node) -> None:
        """Start as many of the waiting tasks on a node as fit, the largest first."""
        while (each := self._fitting(node)) is not None:
            self._grant(each, [node])

    def _grant(self, waiting: Waiting, nodes: Sequence[Node]) -> None:
        if waiting.granted.cancelled():  # what waits for it has not noticed yet
            if not waiting.is_part:
                self.idle.extendleft(nodes)
            self.remove(waiting)
            return
        self._take_out(waiting)
        if waiting.is_part:
            (node,) = nodes
            if node not in self._shared:
                self.idle.remove(node)
                self._shared[node] = None
        if waiting.joins:
            waiting.batch = self._join(waiting, self._group(waiting))
            for each in waiting.batch:
                self._take_out(each)
        take, whole = waiting.needs, waiting.needs.whole
        waiting.granted.set_result(
            [TaskPlace(node, None if whole else node.room.take(take)) for node in nodes]
        )

    def _take_out(self, waiting: Waiting) -> Node | None:
        """Take a task out of the queue; return the node that was kept free for it, if any."""
        group = self._group(waiting)
        del group[waiting]
        if waiting.is_part and not group:
            empty = self._parts.pop(waiting.needs)
            del self._by_size[bisect_left(self._by_size, empty.key, key=_size)]
        if self._kept_free is None or self._kept_free[1] is not waiting:
            return None
        node, self._kept_free = self._kept_free[0], None
        return node

    def _room_for(self, waiting: Waiting) -> Node | None:
        """The fullest of the shared nodes on which a task may start now."""
        room = [node for node in self._shared if node.room.fits(waiting.needs)]
        fullest = sorted(room, key=lambda each: len(each.room.cores))
        return next((node for node in fullest if self._may_have(waiting, node)), None)

    def _fitting(self, node: Node) -> Waiting | None:
        """The largest task that may start now in what is free of a node."""
        room = node.room
        if room.cores and self._by_size:
            largest = bisect_left(self._by_size, (-room.share - ROUNDING, 0), key=_size)
            for n in range(largest, len(self._by_size)):
                each = next(iter(self._by_size[n].tasks))
                if room.fits(each.needs) and self._may_have(each, node):
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
        larger = next(self._largest_parts(), waiting)
        if larger.needs != waiting.needs and self._kept_free is None:
            larger.passed += 1
            if larger.passed > PASSES:
                roomiest = max(self._shared, key=lambda each: len(each.room.cores), default=node)
                self._kept_free = (roomiest, larger)
                return roomiest is not node
        return True

    def _largest_parts(self) -> Iterator[Waiting]:
        """The first task for each part, the largest part first."""
        return (next(iter(group.tasks)) for group in self._by_size)

    def _has_part_before(self, first: Waiting) -> bool:
        return any(each.arrived < first.arrived for each in self._largest_parts())

    def singles(self, most: int) -> list[Waiting]:
        """Leading tasks that are to ask for a node each, at most `most`."""
        unrequested = (each for each in self._whole if not each.requested)
        whole = list(islice(takewhile(lambda each: each.nodes == 1, unrequested), most))
        shares = Counter[float]()
        for group in self._by_size:
            shares[-group.key[0]] += len(group.tasks)
        more = nodes_filled(shares, most - len(whole)) if most > len(whole) else 0
        return [*whole, *islice(chain.from_iterable(map(_tasks, self._by_size)), more)]

    def everybody(self) -> list[Waiting]:
        """All waiting tasks."""
        return [*self._whole, *chain.from_iterable(map(_tasks, self._by_size))]

    def _group(self, waiting: Waiting) -> OrderedDict[Waiting, None]:
        if not waiting.is_part:
            return self._whole
        return self._parts[waiting.needs].tasks if waiting.needs in self._parts else NOBODY


_size = attrgetter("key")
_tasks = attrgetter("tasks")
