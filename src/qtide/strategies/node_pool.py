"""The node pool: the nodes a job currently holds and the tasks waiting for them."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import cached_property
from secrets import token_hex
from typing import Any

from qtide.backends.clusters.cluster import Allocation, Cluster, Node, Work
from qtide.core.errors import NodeLost, NodeUnusable, NotEnoughNodes, QtideError, TimedOut
from qtide.core.forecasts import Forecast, Place
from qtide.core.job import JobContext
from qtide.core.resources import ROUNDING, WHOLE, Needs
from qtide.core.world.world import Future, World
from qtide.programs.phase import Classical, Task
from qtide.strategies.malleable_task import MalleableTask, MalleableTasks
from qtide.strategies.site import Demand
from qtide.strategies.task_batch import TaskBatches
from qtide.strategies.task_queue import Load, TaskPlace, TaskQueue, Waiting, may_join

TRIES = 4
"""Attempts per task; a task that loses a node in each of them is given up."""
PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before nodes are requested again whose agents did not start: at first, and at most."""


class NodePool:
    """Runs tasks on the nodes it holds, and as many at once on a node as fit.

    Tasks for whole nodes are served first come, first served; tasks for parts, the largest first.
    Lost nodes are replaced and their tasks run again. Subclasses decide what to do with idle
    nodes.

    To avoid deadlocks, no pool waits for nodes while holding what other jobs may wait for:
    `starving` pools release their idle nodes, and `on_starving` lets the strategy release its
    lease.
    """

    def __init__(
        self,
        world: World,
        cluster: Cluster,
        job: JobContext,
        most: int,
        forecast: Forecast | None = None,
        needs: Needs = WHOLE,
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.job = job
        self.most = most
        self.forecast = forecast or Forecast(world.now, cluster.expected_wait, cluster.waits_seen)
        self.kind = cluster.kind
        """What its nodes have."""
        self.default_needs = needs
        """What a task needs that says nothing."""
        self.unfinished = Load(self.kind, needs, most)
        self._unqueued = 0
        """Tasks of started phases that are not queued yet; idle nodes may be for them."""
        self.demand = Demand()
        """Demand of the site's other jobs; the strategy sets it to the site's."""
        self.on_starving: Callable[[], None] = lambda: None
        """Called when the pool begins to wait for nodes without which it cannot proceed."""
        self.on_fed: Callable[[], None] = lambda: None
        """Called when such a wait is over."""
        self._queue = TaskQueue(self.kind, self._joined)
        self.idle = self._queue.idle
        """Nodes without a task."""
        self._home: dict[Node, Allocation] = {}
        self.malleable = MalleableTasks(self)
        """Those of its tasks that can grow and shrink."""
        self._coming = 0
        self._regrouping = 0
        self._closed = False
        self._retry_pause = PAUSE
        self._again: Future[Any] | None = None
        """What requests nodes again after a pause."""
        self._gives_way = 0
        """Number of unbounded waits, such as for a lease, during which no idle node is kept."""
        self._started: list[Future[Any]] = []
        self._releases: list[Future[Any]] = []

    @property
    def load(self) -> int:
        """Number of nodes the unfinished tasks can use."""
        return self.unfinished.nodes

    @property
    def size(self) -> int:
        """Number of nodes held."""
        return len(self._home)

    @property
    def coming(self) -> int:
        """Number of nodes requested that have not arrived yet."""
        return self._coming

    @property
    def wanted(self) -> bool:
        """Whether a task waits for nodes."""
        return bool(self._queue)

    @property
    def starving(self) -> bool:
        """Whether the pool cannot proceed until the cluster grants more nodes."""
        return self._regrouping > 0 or (self.size == 0 and self.coming > 0)

    @property
    def stands_still(self) -> bool:
        """Whether tasks are waiting and the pool holds no node."""
        return not self._home and bool(self._queue)

    def run(
        self, phase: Classical, key: str, numbers: Sequence[int] | None = None
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run a phase's tasks, or those with the given numbers, and return their results."""
        chosen = range(len(phase.tasks)) if numbers is None else numbers
        for n in chosen:
            self._refuse_if_hopeless(phase.tasks[n])
        self.forecast.tasks.expect((phase.label, n) for n in chosen)
        for n in chosen:
            self.unfinished.count(phase.tasks[n], 1)
        self._unqueued += len(chosen)
        return self._run(phase, key, chosen)

    def join(self, allocation: Allocation) -> None:
        """Add the nodes of an allocation to the pool."""
        self._home |= dict.fromkeys(allocation.nodes, allocation)
        for node in allocation.nodes:
            node.lost.add_done_callback(self._forgetting(node))
        self._offer(*(node for node in allocation.nodes if node in self._home))

    async def leave(self, allocations: Sequence[Allocation]) -> None:
        """Release allocations and wait until they are released."""
        await self.world.settled([self._release(each) for each in allocations])

    def release_if_idle(self, node: Node) -> None:
        """Release a node's allocation in the background if all its nodes are idle."""
        allocation = self._home.get(node)
        held = [each for each, home in self._home.items() if home is allocation]
        if allocation is not None and all(each in self.idle for each in held):
            self._release(allocation)

    def give_way(self) -> None:
        """Release idle nodes, now and until `keep_again`."""
        self._gives_way += 1
        for node in list(self.idle):
            self.release_if_idle(node)

    def keep_again(self) -> None:
        """End one `give_way`: the wait it was for is over."""
        self._gives_way -= 1

    async def shrink(self, keep: int = 0) -> None:
        """Release all but the first `keep` nodes."""
        kept = set(list(self._home.values())[:keep])
        await self.leave([each for each in dict.fromkeys(self._home.values()) if each not in kept])

    async def close(self) -> None:
        """Release everything for good."""
        self._closed = True
        await self.release_all()

    async def release_all(self) -> None:
        """Cancel pending requests, release all nodes, and wait until that is done."""
        await self.world.cancel(self._started)
        await self.shrink()
        await self.world.settled(self._releases)

    def start(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Start background work that is cancelled at the latest when the pool closes."""
        return self._begin(work, self._started)

    def on_idle(self, node: Node) -> None:
        """Called when a node becomes idle; by default it is kept."""

    def on_done(self) -> None:
        """Called when no unfinished task is left."""

    def worth(self, task: MalleableTask) -> int:
        """How many nodes a malleable task should have; by default, as many as it wants."""
        return task.wanted

    def wish(self, nodes: int) -> None:
        """Called if malleable tasks should have more nodes than are held; by default nothing."""

    def take_back(self, node: Node) -> None:
        """Take back a node that a malleable task has left."""
        if node in self._home:
            self._offer(node)

    def refill(self, nodes: int) -> None:
        """Request nodes in place of lost ones, until `nodes` are held or coming."""
        for _ in range(min(nodes, self.most) - self.size - self.coming):
            self.start(self.replace())

    async def replace(self) -> None:
        """Request a node to replace a lost one."""
        try:
            self.join(await self.fetch(1))
        except QtideError as error:
            self.give_up(error)

    async def fetch(self, nodes: int, **terms: Any) -> Allocation:
        """Request nodes from the cluster; `terms` are fields of `NodeRequest`."""
        self._coming += nodes
        starving = self.starving
        if starving:
            self.on_starving()
        try:
            allocation = await self.cluster.request(self.job, nodes, **terms)
        except BaseException:
            self._coming -= nodes
            self.see_to_waiting()  # a task may have counted on them
            raise
        finally:
            if starving:
                self.on_fed()
        self._coming -= nodes
        self._retry_pause = PAUSE
        return allocation

    def give_up(self, error: Exception) -> None:
        """Fail all waiting tasks if no node is there; if agents did not start, ask again later."""
        if not self._home and not self.coming:
            for waiting in self._queue.everybody():
                self._refuse(waiting, error)
        elif isinstance(error, NodeUnusable) and (self._again is None or self._again.done()):
            self._again = self.start(self._ask_again())

    async def _ask_again(self) -> None:
        await self.world.sleep(self._retry_pause)
        self._retry_pause = min(2 * self._retry_pause, LONGEST_PAUSE)
        self.refill(self.unfinished.singles)

    async def _run(self, phase: Classical, key: str, numbers: Sequence[int]) -> list[Any]:
        """Start the tasks, largest and longest known first, so that the phase ends sooner."""
        label = phase.label
        if len(numbers) == 1:  # saves starting a task in the world
            (n,) = numbers
            return [await self._task(phase.tasks[n], key, (label, n))]
        last, share = self.forecast.tasks.last, self.share
        order = sorted(numbers, key=lambda n: (-share(phase.tasks[n]), -last((label, n))))
        tasks = {n: self.world.start(self._task(phase.tasks[n], key, (label, n))) for n in order}
        return await self.world.results([tasks[n] for n in sorted(tasks)])

    async def _task(self, task: Task[Any], key: str, place: Place) -> Any:
        used: list[TaskPlace] = []
        needs = task.needs_of(self.default_needs)
        joins = not self.world.is_virtual and may_join(task, needs)  # where it saves time
        self._unqueued -= 1  # nothing else runs before it is queued
        try:
            for left in reversed(range(TRIES)):
                try:
                    result = await self._attempt(task, key, place, used, joins=joins)
                except NodeLost as error:
                    self._offer_again(used)
                    joins = False
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
        self, task: Task[Any], key: str, place: Place, used: list[TaskPlace], *, joins: bool
    ) -> Any:
        """Run a task once; the caller must offer the nodes in `used` again."""
        needs = task.needs_of(self.default_needs)
        waiting = Waiting(task, place, self.world.future(), needs, joins)
        used.extend(await self._take(waiting))
        if not used:
            return waiting.result
        if not task.starting():
            return None
        if waiting.batch:
            try:
                return await self._batches.run(waiting, key)
            finally:
                self._queue_again(waiting.batch)
        key = f"{key}/{place[1]}"
        self.forecast.tasks.begin(place)
        nodes = [node for node, _ in used]
        try:
            results = await self._perform(task, key, used)
        except TimedOut:
            self.forecast.tasks.learn(place, 0.0)  # at least this long; the limit ends it
            raise
        self._learn(place, max(node.importing for node in nodes))
        if joins:
            self._batches.learn(task, self.forecast.tasks.last(place))
        return task.result(results)

    def _queue_again(self, tasks: Sequence[Waiting]) -> None:
        """Let those tasks of a batch wait again that it did not come to."""
        left = [each for each in tasks if not each.granted.done()]
        for each in left:
            self._queue.add(each)
        if left:
            self.see_to_waiting()

    @cached_property
    def _batches(self) -> TaskBatches:
        return TaskBatches(self.world, self.job, self.forecast)

    def _joined(self, first: Waiting, alike: Collection[Waiting]) -> list[Waiting]:
        """Those of some tasks that run with one like them in a batch."""
        parts = max(1, self.size) * max(1, int(1 / self.kind.share(first.needs) + ROUNDING))
        return self._batches.joined(first, alike, parts)

    def share(self, task: Task[Any]) -> float:
        """Fraction of a node that a task takes; its number of nodes if it takes whole ones."""
        if task.nodes > 1:
            return float(task.nodes)
        return self.kind.share(task.needs_of(self.default_needs))

    def _end(self, task: Task[Any], place: tuple[str, int]) -> None:
        self.forecast.tasks.end(place)
        self.unfinished.count(task, -1)
        if not self.unfinished:
            self.on_done()

    def _offer_again(self, used: list[TaskPlace]) -> None:
        while used:
            node, slot = used.pop(0)
            if slot is not None:
                node.room.give_back(slot)
            if node in self._home:
                self._offer(node)

    def _learn(self, place: tuple[str, int], importing: float) -> None:
        """Learn a task's duration; its import time counts as part of the node's start-up."""
        self.forecast.tasks.learn(place, importing)
        if importing and self.job.preparation.seconds is not None:
            self.forecast.node_started(self.job.preparation.seconds)

    async def _perform(self, task: Task[Any], key: str, used: list[TaskPlace]) -> list[Any]:
        if task.malleable:  # it offers its nodes itself, except for the first
            nodes = [node for node, _ in used]
            del used[1:]
            return [await self.malleable.run(Work(self.job, task, key), task, nodes)]
        meets = (task.nodes > 1 or task.mpi) and not self.world.is_virtual
        gang = token_hex(8) if meets else ""
        works = [Work(self.job, task, key, rank, gang, slot) for rank, (_, slot) in enumerate(used)]
        if len(used) == 1:  # saves tasks in the world in the common case
            return [await used[0].node.run(works[0])]
        pairs = zip(used, works, strict=True)
        return await self.world.all_of([place.node.run(work) for place, work in pairs])

    async def _take(self, waiting: Waiting) -> list[TaskPlace]:
        self._refuse_if_hopeless(waiting.task)
        self._queue.add(waiting)
        self.see_to_waiting()
        self.malleable.share_out()
        if not self._unqueued and not self._queue:
            for node in list(self.idle):  # no task needs these
                self.on_idle(node)
        if self.stands_still:
            self.demand.stands_still(self)
        try:
            return await waiting.granted
        except CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            elif waiting.has_places:
                self._offer_again(waiting.granted.result())
                self._queue_again(waiting.batch)
            raise
        finally:
            if waiting.regroup is not None:
                waiting.regroup.cancel()

    def see_to_waiting(self) -> None:
        """Regroup the next waiting tasks if they need more nodes than are held.

        One-node tasks regroup only if no node is coming either. Tasks further back do not regroup:
        they would request nodes they cannot use yet, competing with the first task's request.
        """
        if self._closed or not self._queue:
            return
        first = self._queue.leading
        if first is None or first.nodes <= self.size or (first.nodes == 1 and self.coming):
            return
        for each in [first] if first.nodes > 1 else self._queue.singles(self.most):
            if each.regroup is None or each.regroup.done():
                each.regroup = self.start(self._regroup(each))

    async def _regroup(self, waiting: Waiting) -> None:
        """Request all nodes together for a task that needs more at once than are held.

        If jobs collected nodes one by one, two could each hold what the other waits for.
        """
        while waiting in self._queue and waiting.nodes > self.size:
            waiting.requested = self.size + self.coming + waiting.nodes <= self.most
            self._queue.match()
            for node in list(self.idle):
                self.release_if_idle(node)
            if not waiting.requested:
                await self.world.sleep(1.0)  # until pending nodes arrive or tasks end
                continue
            self.see_to_waiting()
            self._regrouping += 1
            try:
                allocation = await self.fetch(waiting.nodes)
            except QtideError as error:
                self._refuse(waiting, error)
                return
            finally:
                self._regrouping -= 1
                waiting.requested = False
            self.join(allocation)

    def _offer(self, *nodes: Node) -> None:
        whole = [node for node in nodes if self._queue.offer(node)]
        if not whole:
            return
        self.see_to_waiting()
        self.malleable.share_out()
        for node in whole:
            if node in self.idle and (self._regrouping or self._gives_way):
                self.release_if_idle(node)
            elif node in self.idle and not self._queue and not self._unqueued:
                self.on_idle(node)

    def _release(self, allocation: Allocation) -> Future[Any]:
        for node in allocation.nodes:
            self._drop(node)
        released = self._begin(self._give_back(allocation), self._releases)
        self.see_to_waiting()
        return released

    def _begin(self, work: Coroutine[Any, Any, Any], known: list[Future[Any]]) -> Future[Any]:
        """Start background work; closing the pool cancels or awaits what is known."""
        known[:] = [each for each in known if not each.done()]
        known.append(self.world.start(work))
        return known[-1]

    async def _give_back(self, allocation: Allocation) -> None:
        began = self.world.now()
        await allocation.release()
        self.forecast.node_released(self.world.now() - began)

    def _drop(self, node: Node) -> None:
        self._home.pop(node, None)
        self._queue.forget(node)
        if self.stands_still:
            self.demand.stands_still(self)

    def _forgetting(self, node: Node) -> Callable[[Any], None]:
        """Callback for the loss of a node: replace it unless the pool released it itself."""

        def forget(_: object) -> None:
            allocation = self._home.get(node)
            if allocation is None:
                return
            self._drop(node)
            if allocation not in self._home.values():
                self._release(allocation)
            else:  # or its replacement might wait for this very node
                self._begin(allocation.return_lost(node), self._releases)
            if not self._closed:
                self.start(self.replace())
            self._refuse_hopeless_ones()
            self.see_to_waiting()

        return forget

    def _refuse_hopeless_ones(self) -> None:
        for waiting in self._queue.everybody():
            if waiting.nodes > self.cluster.size:
                self._refuse(waiting, self._hopeless(waiting.nodes))

    def _refuse(self, waiting: Waiting, error: Exception) -> None:
        if waiting in self._queue:
            self._queue.remove(waiting)
            waiting.granted.set_exception(error)
            self._queue.match()  # others may have queued behind it
            self.see_to_waiting()  # or counted on the same nodes

    def _refuse_if_hopeless(self, task: Task[Any]) -> None:
        if task.nodes > min(self.most, self.cluster.size):
            raise self._hopeless(task.nodes)
        needs = task.needs_of(self.default_needs)
        if not needs.whole:
            self.kind.refuse_if_impossible(needs, f"the task {task.name}")

    def _hopeless(self, nodes: int) -> NotEnoughNodes:
        return NotEnoughNodes(
            f"{self.job.name} has a task for {nodes} nodes, but may hold {self.most} of a cluster "
            f"of {self.cluster.size}; raise --nodes, or name a larger cluster"
        )
