"""The pool: the nodes that a job holds at the moment, and the tasks that wait for one of them."""

from __future__ import annotations

from asyncio import CancelledError
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from secrets import token_hex
from typing import Any

from qtide.backends.clusters.cluster import Allocation, Cluster, Node, NodeLost, Work
from qtide.core.errors import NotEnoughNodes, QtideError, TimedOut
from qtide.core.forecasts import Forecast
from qtide.core.job import JobContext
from qtide.core.world.world import Future, World
from qtide.programs.phase import Classical, Task
from qtide.strategies.site import Demand


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


TRIES = 4
"""How often a task is started before it counts as what kills its nodes."""


class NodePool:
    """Tasks are spread over the nodes there are, first come first served.

    A node that is lost is replaced, and its task runs again. Subclasses say what becomes of
    a node that has nothing to do.

    No pool waits for nodes while it holds on to what others may wait for: `starving` pools give
    up their idle nodes, and `on_starving` lets the strategy give up its lease.
    """

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        job: JobContext,
        most: int,
        forecast: Forecast | None = None,
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.job = job
        self.most = most
        self.forecast = forecast or Forecast(world.now, cluster.expected_wait, cluster.waits_seen)
        self.load = 0
        """How many nodes the unfinished tasks can use,"""
        self.singles = 0
        """and those of them that are content with one."""
        self._unqueued = 0
        """Tasks of a phase that has begun which are not in the queue yet: an idle node may be
        theirs."""
        self.demand = Demand()
        """What other jobs of the site wait for; a strategy puts the site's own here."""
        self.on_starving: Callable[[], None] = lambda: None
        self.idle: deque[Node] = deque()
        self._home: dict[Node, Allocation] = {}
        self._waiting = TaskQueue()
        self._coming = 0
        self._regrouping = 0
        self._closed = False
        self._gives_way = 0
        """For how many waits without a limit, such as for a lease, no idle node is kept."""
        self._started: list[Future[Any]] = []
        self._releases: list[Future[Any]] = []

    @property
    def size(self) -> int:
        """How many nodes are held."""
        return len(self._home)

    @property
    def coming(self) -> int:
        """How many nodes were asked for and are not here yet."""
        return self._coming

    @property
    def wanted(self) -> bool:
        """Whether a task waits for nodes."""
        return bool(self._waiting)

    @property
    def starving(self) -> bool:
        """Whether nothing goes on until the cluster grants more."""
        return self._regrouping > 0 or (self.size == 0 and self.coming > 0)

    @property
    def stands_still(self) -> bool:
        """Whether there are tasks to do and no node."""
        return not self._home and bool(self._waiting)

    def run(self, phase: Classical, key: str) -> Coroutine[Any, Any, list[Any]]:
        """The results of a phase's tasks."""
        for task in phase.tasks:
            self._refuse_if_hopeless(task.nodes)
        self.forecast.tasks.expect((phase.label, n) for n in range(len(phase.tasks)))
        self.load += phase.nodes
        self.singles += sum(task.nodes == 1 for task in phase.tasks)
        self._unqueued += len(phase.tasks)
        return self._run(phase, key)

    def join(self, allocation: Allocation) -> None:
        """Nodes are there."""
        self._home |= dict.fromkeys(allocation.nodes, allocation)
        for node in allocation.nodes:
            node.lost.add_done_callback(self._forgetting(node))
            if node in self._home:
                self._offer(node)

    async def leave(self, allocations: Sequence[Allocation]) -> None:
        """Give allocations back, and wait until they are."""
        await self.world.settled([self._release(each) for each in allocations])

    def release_if_idle(self, node: Node) -> None:
        """Give the grant of a node back while other things go on, once all its nodes are idle."""
        allocation = self._home.get(node)
        held = [each for each, home in self._home.items() if home is allocation]
        if allocation is not None and all(each in self.idle for each in held):
            self._release(allocation)

    def give_way(self) -> None:
        """Keep no idle node, now and from now on, until `keep_again`."""
        self._gives_way += 1
        for node in list(self.idle):
            self.release_if_idle(node)

    def keep_again(self) -> None:
        """What the job waited for has come, or is no longer wanted."""
        self._gives_way -= 1

    async def shrink(self, keep: int = 0) -> None:
        """Give back all but the first `keep` nodes."""
        kept = set(list(self._home.values())[:keep])
        await self.leave([each for each in dict.fromkeys(self._home.values()) if each not in kept])

    async def close(self) -> None:
        """Give everything back, for good."""
        self._closed = True
        await self.release_all()

    async def release_all(self) -> None:
        """Give everything back, also what is on its way, and wait until it is."""
        await self.world.cancel(self._started)
        await self.shrink()
        await self.world.settled(self._releases)

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start something that ends with the pool at the latest."""
        self._started = [each for each in self._started if not each.done()]
        self._started.append(self.world.start(work))
        return self._started[-1]

    def on_idle(self, node: Node) -> None:
        """A node has nothing to do: it stays."""

    def on_done(self) -> None:
        """No task is left, until the program says what it wants next."""

    async def replace(self) -> None:
        """Ask for a node in place of a lost one."""
        try:
            self.join(await self.fetch(1))
        except QtideError as error:
            self.give_up(error)

    async def fetch(self, nodes: int) -> Allocation:
        """Ask the cluster for nodes."""
        self._coming += nodes
        if self.starving:
            self.on_starving()
        try:
            allocation = await self.cluster.request(self.job, nodes)
        except BaseException:
            self._coming -= nodes
            self.see_to_waiting()  # somebody may have counted on them
            raise
        self._coming -= nodes
        return allocation

    def give_up(self, error: Exception) -> None:
        """A node will not come: if no other is here or to come, whoever waits hears so."""
        if not self._home and not self.coming:
            for waiting in self._waiting.everybody():
                self._refuse(waiting, error)

    async def _run(self, phase: Classical, key: str) -> list[Any]:
        """Start the tasks, those first that took longest before: the phase ends sooner so."""
        label = phase.label
        if len(phase.tasks) == 1:  # which needs no task of the world
            return [await self._task(phase.tasks[0], key, (label, 0))]
        last = self.forecast.tasks.last
        order = sorted(range(len(phase.tasks)), key=lambda n: -last((label, n)))
        tasks = {n: self.world.start(self._task(phase.tasks[n], key, (label, n))) for n in order}
        return await self.world.results([tasks[n] for n in sorted(tasks)])

    async def _task(self, task: Task[Any], key: str, place: tuple[str, int]) -> Any:
        used: list[Node] = []
        self._unqueued -= 1  # nothing else happens until it is in the queue
        try:
            for left in reversed(range(TRIES)):
                try:
                    result = await self._attempt(task, f"{key}/{place[1]}", place, used)
                except NodeLost as error:
                    self._offer_again(used)
                    if not left:
                        error.add_note(f"the task {task.name} lost {TRIES} nodes; it is given up")
                        raise
                else:
                    task.succeeded(result)
                    return result
        except Exception as error:
            task.failed(error)
            raise
        finally:
            self._end(task, place)
            self._offer_again(used)

    async def _attempt(
        self, task: Task[Any], key: str, place: tuple[str, int], used: list[Node]
    ) -> Any:
        """Run a task once; the nodes that it used are the caller's to offer again."""
        used.extend(await self._take(task.nodes))
        if not task.starting():
            return None
        self.forecast.tasks.begin(place)
        gang = token_hex(8) if task.mpi else ""
        works = [Work(self.job, task, key, rank, gang) for rank in range(task.nodes)]
        try:
            results = await self._perform(used, works)
        except TimedOut:
            self.forecast.tasks.learn(place, 0.0)  # at least so long it takes, and no longer
            raise
        self._learn(place, max(node.importing for node in used))
        return results if task.nodes > 1 else results[0]

    def _end(self, task: Task[Any], place: tuple[str, int]) -> None:
        self.forecast.tasks.end(place)
        self.load -= task.nodes
        self.singles -= task.nodes == 1
        if not self.load:
            self.on_done()

    def _offer_again(self, used: list[Node]) -> None:
        while used:
            node = used.pop(0)
            if node in self._home:
                self._offer(node)

    def _learn(self, place: tuple[str, int], importing: float) -> None:
        """So long a task works; what it had to import belongs to the start of its node."""
        self.forecast.tasks.learn(place, importing)
        if importing and self.job.preparation.seconds is not None:
            self.forecast.node_started(self.job.preparation.seconds)

    async def _perform(self, nodes: list[Node], works: list[Work]) -> list[Any]:
        if len(nodes) == 1:  # no further task of the world for what is most common
            return [await nodes[0].run(works[0])]
        pairs = zip(nodes, works, strict=True)
        return await self.world.all_of([node.run(work) for node, work in pairs])

    async def _take(self, nodes: int) -> list[Node]:
        self._refuse_if_hopeless(nodes)
        waiting = Waiting(nodes, self.world.future())
        self._waiting.add(waiting)
        self._match()
        self.see_to_waiting()
        if not self._unqueued and not self._waiting:
            for node in list(self.idle):  # which all tasks together have left over
                self.on_idle(node)
        if self.stands_still:
            self.demand.stands_still(self)
        try:
            return await waiting.granted
        except CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.granted.done() and not waiting.granted.cancelled():
                self.idle.extend(waiting.granted.result())
            raise
        finally:
            if waiting.regroup is not None:
                waiting.regroup.cancel()

    def see_to_waiting(self) -> None:
        """Let those regroup who are next and wait for more than is held, or for nothing.

        Those behind do not: they would ask for nodes that they may not use yet, in the way of those
        that the first one asks for.
        """
        first = None if self._closed else self._waiting.first
        if first is None or first.nodes <= self.size or (first.nodes == 1 and self.coming):
            return
        for each in [first] if first.nodes > 1 else self._waiting.singles(self.most):
            if each.regroup is None or each.regroup.done():
                each.regroup = self.start(self._regroup(each))

    async def _regroup(self, waiting: Waiting) -> None:
        """A task needs more nodes at once than are held: ask for all of them together.

        Collecting them one by one, two jobs could each hold what the other one waits for.
        """
        while waiting in self._waiting and waiting.nodes > self.size:
            for node in list(self.idle):
                self.release_if_idle(node)
            if self.size + self.coming + waiting.nodes > self.most:
                await self.world.sleep(1.0)  # until what is under way has come, or ended
                continue
            self._regrouping += 1
            try:
                allocation = await self.fetch(waiting.nodes)
            except QtideError as error:
                self._refuse(waiting, error)
                return
            finally:
                self._regrouping -= 1
            self.join(allocation)

    def _offer(self, node: Node) -> None:
        self.idle.append(node)
        self._match()
        self.see_to_waiting()
        if node in self.idle and (self._regrouping or self._gives_way):
            self.release_if_idle(node)
        elif node in self.idle and not self._waiting and not self._unqueued:
            self.on_idle(node)

    def _match(self) -> None:
        while (first := self._waiting.first) and len(self.idle) >= first.nodes:
            self._waiting.remove(first)
            first.granted.set_result([self.idle.popleft() for _ in range(first.nodes)])

    def _release(self, allocation: Allocation) -> Future[Any]:
        for node in allocation.nodes:
            self._drop(node)
        self._releases = [each for each in self._releases if not each.done()]
        self._releases.append(self.world.start(self._give_back(allocation)))
        self.see_to_waiting()
        return self._releases[-1]

    async def _give_back(self, allocation: Allocation) -> None:
        began = self.world.now()
        await allocation.release()
        self.forecast.node_released(self.world.now() - began)

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
            if not self._closed:
                self.start(self.replace())
            self._refuse_hopeless_ones()
            self.see_to_waiting()

        return forget

    def _refuse_hopeless_ones(self) -> None:
        for waiting in self._waiting.everybody():
            if waiting.nodes > self.cluster.size:
                self._refuse(waiting, self._hopeless(waiting.nodes))

    def _refuse(self, waiting: Waiting, error: Exception) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            waiting.granted.set_exception(error)
            self._match()  # others had stood behind it,
            self.see_to_waiting()  # or counted on the same nodes

    def _refuse_if_hopeless(self, nodes: int) -> None:
        if nodes > min(self.most, self.cluster.size):
            raise self._hopeless(nodes)

    def _hopeless(self, nodes: int) -> NotEnoughNodes:
        return NotEnoughNodes(
            f"{self.job.name} has a task for {nodes} nodes, but may hold {self.most} of a cluster "
            f"of {self.cluster.size}; raise --nodes, or name a larger cluster"
        )
