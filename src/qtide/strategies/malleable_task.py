"""Malleable tasks: the driver's side of tasks whose number of nodes changes while they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from qtide.backends.clusters.cluster import Message, Node, Work
from qtide.core.world.world import Future
from qtide.programs.phase import Task

if TYPE_CHECKING:
    from qtide.strategies.node_pool import NodePool

END_LIMIT = 30.0
"""Seconds within which the other processes of a task must end after its root."""
UNKNOWN_LEFT = 100
"""Assumed number of steps that are left of a task that does not say so."""
LONG = 4
"""A task is worth an experiment if it lasts so many times as long as a node takes to come."""
WORTHWHILE = 0.95
"""A change of size has to reduce the expected cost to this share of it."""
MOMENT = 1e-9
"""Shortest step, in seconds."""
FUTILE = 3
"""After so many newcomers that did not become members, a task gets no further nodes."""


def step_of(task: Task[Any]) -> str:
    """The name under which the duration of a task's steps is known, by the number of nodes."""
    return f"{task.name} step"


class MalleableTask:
    """A malleable task that runs: the nodes that it has, and how many it should have.

    The first node is that of its root, which says how many nodes the task wants. On each of the
    others, a newcomer starts that joins by itself; when it has left, its node is free again.
    """

    def __init__(self, pool: NodePool, work: Work, task: Task[Any]) -> None:
        self.task = task
        self.least = task.nodes
        self.wanted = task.most or task.nodes
        """How many nodes the program wants at most."""
        self.goal = task.nodes
        """How many nodes it may have now."""
        self.target = task.nodes
        """How many it should have, of which some may still have to come."""
        self.size = 1
        """How many processes take part, as the root said last."""
        self.left: int | None = None
        """How many steps are left, as the root said last; None if it did not say."""
        self._pool = pool
        saved = work.folder / "saved" / work.key.replace("/", "-")
        terms = {"sizes": [task.nodes, task.most], "saved": str(saved)}
        self._work = replace(work, member=terms, hear=self._hear)
        self._invitation = ""
        """Where newcomers join; empty until the root says so."""
        self._spare: list[Node] = []
        """Nodes that wait for the invitation."""
        self._members: dict[Node, Future[None]] = {}
        self._numbers = count(1)
        self._question = 0
        self._futile = 0
        self._harmed = False
        """Whether a process was lost: what is left of MPI in the others may not work any more."""
        self._root: Node | None = None
        self._over = False
        """Whether the program has done its work, so that its nodes only end."""

    @property
    def runs(self) -> bool:
        """Whether it may still use nodes."""
        return self._root is not None and not self._over

    @property
    def nodes(self) -> int:
        """The number of nodes that it has, also for processes that are about to join or leave."""
        return 1 + len(self._spare) + len(self._members)

    async def run(self, root: Node, others: Sequence[Node]) -> Any:
        """Run the task; its nodes except for the root's go back to the pool by themselves."""
        self._root = root
        for node in others:
            self.add(node)
        try:
            return await root.run(self._work)
        except BaseException:
            self._harmed = True
            raise
        finally:
            self._root = None
            await self._end(root)

    def add(self, node: Node) -> None:
        """Start a newcomer on a node."""
        if not self._invitation:
            self._spare.append(node)
            return
        number = next(self._numbers)
        terms = {**(self._work.member or {}), "invitation": self._invitation.format(number)}
        work = replace(
            self._work,
            task=replace(self.task, limit=None),  # that of the root ends all
            rank=number,
            member=terms,
            hear=lambda _: None,
        )
        self._members[node] = self._pool.world.start(self._member(node, work))

    def aim(self, goal: int) -> None:
        """Tell the root how many nodes the task may have, if that changes."""
        if goal != self.goal:
            self.goal = goal
            self._tell()

    async def _member(self, node: Node, work: Work) -> None:
        try:
            joined = await node.run(work)
            self._futile += not joined and self.goal >= self.nodes
        except Exception:  # the root says what it means for the task
            self._harmed = True
        finally:
            del self._members[node]
            self._pool.take_back(node)

    def _hear(self, message: Message) -> None:
        """Note what the root says."""
        if self._root is None:  # the task has ended for the driver
            return
        if "over" in message:
            self._over = True
            return
        if "invitation" in message:
            self._invitation = message["invitation"]
            spare, self._spare = self._spare, []
            for node in spare:
                self.add(node)
            return
        before, self.size = self.size, message["size"]
        if self.size != before:
            what = "grew" if self.size > before else "shrank"
            self._work.job.ledger.note(what, "nodes", before=before, after=self.size)
        self.wanted, self.left = message["wanted"], message["left"]
        if self._futile >= FUTILE:
            self.wanted = min(self.wanted, self.size)
        if message["laps"]:
            seconds = self._pool.world.counted(message["seconds"]) / message["laps"]
            self._pool.forecast.tasks.learn_size(step_of(self.task), self.size, seconds)
        self._pool.malleable.share_out()
        if message["question"] != self._question:
            self._question = message["question"]
            self._tell()

    def _tell(self) -> None:
        if self._root is not None:
            self._root.tell(self._work, {"goal": self.goal, "answer": self._question})

    async def _end(self, root: Node) -> None:
        """Wait until all other processes have ended; kill them if the root failed."""
        pool = self._pool
        while self._spare:
            pool.take_back(self._spare.pop())
        if self._harmed:
            self._restart(root)
        alarm = pool.world.alarm(END_LIMIT, lambda: self._restart(root))
        try:
            await pool.world.settled(list(self._members.values()))
        finally:
            alarm.cancel()

    def _restart(self, root: Node) -> None:
        for node in (root, *self._members):
            node.restart()


@dataclass(frozen=True)
class Weights:
    """How a strategy weighs the rest of a malleable task on different numbers of nodes."""

    time: float
    """Weight of a second of the job."""
    node: float
    """Weight of a second of a node."""
    lead: float
    """Seconds until a further node comes."""
    turnaround: float
    """Seconds that a further node is held without work."""

    def best(self, task: MalleableTask, seconds: Mapping[int, float], sizes: range) -> int:
        """The number of nodes on which the rest of a task should cost least.

        `seconds` has those of a step. Until two sizes are known, a long task tries twice as many
        nodes; later, only what saves a twentieth of the cost is worth a change.
        """
        left = task.left or UNKNOWN_LEFT
        now, aimed = (min(max(each, sizes[0]), sizes[-1]) for each in (task.goal, task.target))
        if not seconds or not self.time:
            return now if self.time else sizes[0]
        if len(seconds) == 1:
            ((known, lasts),) = seconds.items()
            long = left * lasts > LONG * max(self.lead, self.turnaround)
            return min(2 * known, sizes[-1]) if long else now

        def cost(nodes: int) -> float:
            more = max(0, nodes - task.nodes)
            late = min(left, self.lead / max(seconds[now], MOMENT)) if more else 0.0
            spent = late * self._rate(now) * seconds[now]
            spent += (left - late) * self._rate(nodes) * seconds[nodes]
            return spent + more * self.node * self.turnaround

        best = min(sizes, key=cost)
        return best if cost(best) < WORTHWHILE * cost(aimed) else aimed

    def _rate(self, nodes: int) -> float:
        return self.time + self.node * nodes


class MalleableTasks:
    """The malleable tasks of a pool, which have the nodes that no other task can use."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._running: list[MalleableTask] = []

    async def run(self, work: Work, task: Task[Any], nodes: Sequence[Node]) -> Any:
        """Run a task, which begins on these nodes."""
        running = MalleableTask(self._pool, work, task)
        self._running.append(running)
        try:
            return await running.run(nodes[0], nodes[1:])
        finally:
            self._running.remove(running)

    def share_out(self) -> None:
        """Give idle nodes to the tasks, or call nodes back that other tasks of the job can use."""
        pool, running = self._pool, [each for each in self._running if each.runs]
        if not running:
            return
        least = sum(each.least for each in running)
        spare = max(0, pool.size - (pool.load - least) - least)
        lacking = 0
        for each in running:
            each.target = max(each.least, pool.worth(each))
            wanted = each.target - each.least
            given = min(spare, wanted)
            spare -= given
            lacking += wanted - given
            each.aim(each.least + given)
        for each in running:
            while pool.idle and each.nodes < each.goal:
                each.add(pool.idle.popleft())
        if lacking and pool.load <= pool.size:
            pool.wish(lacking)
