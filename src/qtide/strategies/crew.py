"""The crew: the nodes that a job holds at the moment, and the tasks that wait for one of them."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.clusters.cluster import Allocation, Cluster, Node, NodeLost, NotEnoughNodes, Work
from qtide.errors import QtideError
from qtide.programs.job import Job
from qtide.programs.phase import Classical, Task
from qtide.world.world import Future, World

TRIES = 4
"""How often a task is started before it counts as what kills its nodes."""


@dataclass(eq=False)
class Waiting:
    """A task that needs so many nodes at once."""

    nodes: int
    turn: Future[list[Node]]


class Crew:
    """Tasks are spread over the nodes there are, first come first served.

    A node that is lost is replaced, and its task runs again. Heirs say what becomes of a node
    that has nothing to do.
    """

    def __init__(self, world: World, cluster: Cluster, job: Job, most: int) -> None:
        self.world = world
        self.cluster = cluster
        self.job = job
        self.most = most
        self.load = 0
        """How many nodes the unfinished tasks can use."""
        self.idle: deque[Node] = deque()
        self._home: dict[Node, Allocation] = {}
        self._waiting: deque[Waiting] = deque()
        self._errands: list[Future[Any]] = []
        self._releases: list[Future[Any]] = []
        self._seconds: dict[tuple[str, int], float] = {}

    @property
    def size(self) -> int:
        """How many nodes are held."""
        return len(self._home)

    def run(self, phase: Classical, key: str) -> Coroutine[Any, Any, list[Any]]:
        """The results of a phase's tasks."""
        for task in phase.tasks:
            self._refuse_if_hopeless(task.nodes)
        self.load += phase.nodes
        return self._run(phase, key)

    def join(self, allocation: Allocation) -> None:
        """Nodes are there."""
        for node in allocation.nodes:
            self._home[node] = allocation
            node.lost.add_done_callback(self._forgetting(node))
            if node in self._home:
                self._offer(node)

    async def leave(self, allocations: Sequence[Allocation]) -> None:
        """Give allocations back, and wait until they are."""
        await self.world.settled([self._release(each) for each in allocations])

    def give_back(self, node: Node) -> None:
        """Give the grant of a node back while other things go on."""
        self._release(self._home[node])

    async def shrink(self, keep: int = 0) -> None:
        """Give back all but the first `keep` nodes."""
        kept = set(list(self._home.values())[:keep])
        await self.leave([each for each in dict.fromkeys(self._home.values()) if each not in kept])

    async def dismiss(self) -> None:
        """Give everything back, also what is on its way, and wait until it is."""
        await self.world.cancel(self._errands)
        await self.shrink()
        await self.world.settled(self._releases)

    def errand(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start something that ends with the crew at the latest."""
        self._errands = [each for each in self._errands if not each.done()]
        self._errands.append(self.world.start(work))
        return self._errands[-1]

    def spare(self, node: Node) -> None:
        """A node has nothing to do: it stays."""

    async def replace(self) -> None:
        """Ask for a node in place of a lost one."""
        try:
            self.join(await self.cluster.request(self.job, 1))
        except QtideError as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """No node will come: if none is left either, whoever waits for one hears so."""
        while self._waiting and not self._home:
            self._waiting.popleft().turn.set_exception(error)

    async def _run(self, phase: Classical, key: str) -> list[Any]:
        """Start the tasks, those first that took longest before: the phase ends sooner so."""
        label = phase.label
        order = sorted(range(len(phase.tasks)), key=lambda n: -self._seconds.get((label, n), 0.0))
        tasks = {n: self.world.start(self._task(phase.tasks[n], key, (label, n))) for n in order}
        try:
            await self.world.settled(tasks.values())
        except CancelledError:
            await self.world.cancel(tasks.values())
            raise
        return [tasks[n].result() for n in sorted(tasks)]

    async def _task(self, task: Task, key: str, place: tuple[str, int]) -> Any:
        try:
            for left in reversed(range(TRIES)):
                try:
                    return await self._attempt(task, f"{key}/{place[1]}", place)
                except NodeLost as error:
                    if not left:
                        error.add_note(f"the task {task.name} lost {TRIES} nodes; it is given up")
                        raise
        finally:
            self.load -= task.nodes

    async def _attempt(self, task: Task, key: str, place: tuple[str, int]) -> Any:
        nodes = await self._take(task.nodes)
        began = self.world.now()
        works = [Work(self.job, task, key, rank) for rank in range(task.nodes)]
        try:
            pairs = zip(nodes, works, strict=True)
            results = await self.world.all_of([node.run(work) for node, work in pairs])
            self._seconds[place] = self.world.now() - began
        finally:
            for node in nodes:
                if node in self._home:
                    self._offer(node)
        return results if task.nodes > 1 else results[0]

    async def _take(self, nodes: int) -> list[Node]:
        self._refuse_if_hopeless(nodes)
        waiting = Waiting(nodes, self.world.future())
        self._waiting.append(waiting)
        self._match()
        try:
            return await waiting.turn
        except CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.turn.done() and not waiting.turn.cancelled():
                self.idle.extend(waiting.turn.result())
            raise

    def _offer(self, node: Node) -> None:
        self.idle.append(node)
        self._match()
        if node in self.idle and not self._waiting:
            self.spare(node)

    def _match(self) -> None:
        while self._waiting and len(self.idle) >= self._waiting[0].nodes:
            first = self._waiting.popleft()
            first.turn.set_result([self.idle.popleft() for _ in range(first.nodes)])

    def _release(self, allocation: Allocation) -> Future[Any]:
        for node in allocation.nodes:
            self._drop(node)
        self._releases = [each for each in self._releases if not each.done()]
        self._releases.append(self.world.start(allocation.release()))
        return self._releases[-1]

    def _drop(self, node: Node) -> None:
        self._home.pop(node, None)
        if node in self.idle:
            self.idle.remove(node)

    def _forgetting(self, node: Node) -> Callable[[Any], None]:
        """What happens when a node is gone: unless we gave it back ourselves, see to another."""

        def forget(_: object) -> None:
            allocation = self._home.get(node)
            if allocation is None:
                return
            self._drop(node)
            if allocation not in self._home.values():
                self._release(allocation)
            self.errand(self.replace())
            self._refuse_hopeless_ones()

        return forget

    def _refuse_hopeless_ones(self) -> None:
        for waiting in [each for each in self._waiting if each.nodes > self.cluster.size]:
            self._waiting.remove(waiting)
            waiting.turn.set_exception(self._hopeless(waiting.nodes))

    def _refuse_if_hopeless(self, nodes: int) -> None:
        if nodes > min(self.most, self.cluster.size):
            raise self._hopeless(nodes)

    def _hopeless(self, nodes: int) -> NotEnoughNodes:
        return NotEnoughNodes(
            f"{self.job.name} has a task for {nodes} nodes, but may hold {self.most} of a cluster "
            f"of {self.cluster.size}; raise --nodes, or name a larger cluster"
        )
