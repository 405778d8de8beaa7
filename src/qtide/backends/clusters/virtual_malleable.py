"""Malleable tasks in virtual time: rounds that take as long as the function pretends at a size.

The function is called once for each number of nodes that the task has in the course of its run,
with a stand-in for its job. What it pretends between two calls of `check`, `expand` or `shrink` is
how long that round takes on so many nodes. So its results must not depend on the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

from qtide.backends.clusters.cluster import Message, Node, Work
from qtide.backends.clusters.pretend import metered
from qtide.backends.clusters.virtual_tasks import logged
from qtide.core.errors import NodeLost, PhaseError
from qtide.core.world.world import World


@dataclass
class Round:
    """What the function does until its next call that can change the size."""

    seconds: float = 0.0
    wanted: int | None = None
    """How many nodes it wants from its end on; None for as many as before."""
    left: int | None = None


class VirtualJob:
    """Stands in for a `qtide.malleable.Job` of a fixed size."""

    newcomer = pending = False
    rank, root = 0, True

    def __init__(self, least: int, most: int, size: int, pretended: list[float]) -> None:
        self.size = size
        self.sizes = SimpleNamespace(least=least, preferred=most, most=most)
        self.state = SimpleNamespace()
        self.rounds: list[Round] = []
        self._pretended = pretended
        self._steps: int | None = None

    def begin(self, **values: Any) -> SimpleNamespace:
        """Set the state's initial values."""
        vars(self.state).update(values | vars(self.state))
        return self.state

    def steps(self, count: int) -> Iterator[int]:
        """Count the steps of a loop."""
        self._steps = count
        for step in range(count):
            self.begin(step=0).step = step
            yield step
        self.state.step = count

    def check(self) -> bool:
        """End a round; nothing changes here."""
        self.end_round()
        return False

    def expand(self, to: int | None = None, least: int | None = None, wait: float = 5.0) -> int:
        """End a round, after which the task wants more nodes."""
        self.end_round(min(to or self.sizes.preferred, self.sizes.most))
        return self.size

    def shrink(self, to: int) -> int:
        """End a round, after which the task wants fewer nodes."""
        self.end_round(max(to, self.sizes.least))
        return self.size

    def minimise(self) -> int:
        """End a round, after which the task wants as few nodes as possible."""
        return self.shrink(self.sizes.least)

    def save(self) -> None:
        """Do nothing: in virtual time, a lost task begins anew."""

    def end_round(self, wanted: int | None = None) -> None:
        """Note what was pretended since the last call."""
        left = None if self._steps is None else self._steps - vars(self.state).get("step", 0)
        self.rounds.append(Round(sum(self._pretended), wanted, left))
        self._pretended.clear()

    def __getattr__(self, name: str) -> NoReturn:
        raise PhaseError(
            f"job.{name} cannot be used in virtual time, where a malleable task only pretends to "
            "work; use local or slurm"
        )


@dataclass(eq=False)
class VirtualMember:
    """A process of the task on a node of its own."""

    node: Node
    ticket: int


@dataclass(eq=False)
class VirtualRoot:
    """The root of a malleable task, which goes from round to round."""

    world: World
    node: Node
    ticket: int
    work: Work
    seconds: Callable[[Work, float | None], float]
    name: str
    """The invitation of newcomers, without their number."""
    over: Callable[[VirtualRoot], None]
    members: list[VirtualMember] = field(default_factory=list)
    arrived: list[VirtualMember] = field(default_factory=list)
    """Newcomers that wait for the end of the round."""

    def __post_init__(self) -> None:
        assert self.work.member is not None
        self._least, self._most = self.work.member["sizes"]
        self._goal = self._wanted = self._least
        self._runs: dict[int, tuple[list[Round], Any]] = {}
        self._done = 0
        self.world.alarm(0.0, self._begin)

    @property
    def size(self) -> int:
        """The current number of processes."""
        return 1 + len(self.members)

    def tell(self, message: Message) -> None:
        """Hear how many nodes the task may have."""
        self._goal = message["goal"]

    def join(self, member: VirtualMember) -> None:
        """Let a newcomer wait until the next round; the first ones begin with the root."""
        self.arrived.append(member)
        if not self._runs and self.size + len(self.arrived) >= self._least:
            self._start()

    def _begin(self) -> None:
        self.work.hear({"invitation": f"{self.name} {{}}"})
        if self._least == 1:
            self._start()

    def _start(self) -> None:
        self._wanted = self._most
        self.members, self.arrived = self.arrived, []
        self._next_round()

    def _next_round(self) -> None:
        try:
            rounds, _ = self._run(self.size)
        except Exception as error:
            self._finish(None, error)
            return
        self.world.alarm(rounds[self._done].seconds, self._round_ended)

    def _round_ended(self) -> None:
        rounds, result = self._run(self.size)
        if self.node.lost.done():
            self.over(self)
            return
        if any(each.node.lost.done() for each in self.members):
            self._finish(None, NodeLost("a process of the task is gone"))
            return
        ended = rounds[self._done]
        self._done += 1
        if self._done == len(rounds):
            self.work.hear({"over": True})
            self._finish(result, None)
            return
        self._wanted = self._wanted if ended.wanted is None else ended.wanted
        self._report(ended if self._done > 1 else None)
        may_have = max(self._least, min(self._goal, self._wanted))
        before, leaving = self.size, self.members[may_have - 1 :]
        self.members = self.members[: may_have - 1]
        while self.arrived:
            newcomer = self.arrived.pop(0)
            if self.size < may_have and not newcomer.node.lost.done():
                self.members.append(newcomer)
            else:
                newcomer.node.deliver(newcomer.ticket, False)
        for each in leaving:
            each.node.deliver(each.ticket, True)
        if self.size != before:
            self._report(None)
        self._next_round()

    def _report(self, ended: Round | None) -> None:
        """Tell the driver what the root of a real task tells it."""
        self.work.hear(
            {
                "size": self.size,
                "wanted": self._wanted,
                "laps": 0 if ended is None else 1,
                "seconds": 0.0 if ended is None else ended.seconds,
                "left": None if ended is None else ended.left,
                "question": 0,
            }
        )

    def _run(self, size: int) -> tuple[list[Round], Any]:
        """What the function does on so many nodes: its rounds, and its result."""
        if size not in self._runs:
            work, task = self.work, self.work.task
            with metered() as pretended, logged(work.job.log, self.node.name, *work.place):
                job = VirtualJob(self._least, self._most, size, pretended)
                result = task.function(*task.args, **work.kwargs, job=job)
                job.end_round()
            self._take_recorded_time(job.rounds)
            self._runs[size] = job.rounds, result
        return self._runs[size]

    def _take_recorded_time(self, rounds: list[Round]) -> None:
        """Spread over the rounds what the task took in an earlier run, if it pretends nothing."""
        total = sum(each.seconds for each in rounds)
        more = self.seconds(self.work, total or None) - total
        for each in rounds:
            each.seconds += more / len(rounds)

    def _finish(self, result: Any, error: Exception | None) -> None:
        self.over(self)
        for each in (*self.members, *self.arrived):
            each.node.deliver(each.ticket, True)
        self.node.deliver(self.ticket, result, error)


class VirtualMalleableTasks:
    """The malleable tasks that run on a cluster in virtual time."""

    def __init__(self, world: World, seconds: Callable[[Work, float | None], float]) -> None:
        self._world = world
        self._seconds = seconds
        self._roots: dict[str, VirtualRoot] = {}

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Start a root, or a newcomer of one."""
        assert work.member is not None
        invitation = work.member.get("invitation")
        if invitation is None:
            name = f"{node.name}-{ticket}"
            terms = (self._world, node, ticket, work, self._seconds, name, self._forget)
            self._roots[name] = VirtualRoot(*terms)
            return
        root = self._roots.get(invitation.split()[0])
        if root is None:
            self._world.alarm(0.0, lambda: node.deliver(ticket, False))
        else:
            root.join(VirtualMember(node, ticket))

    def tell(self, ticket: int, message: Message) -> None:
        """Tell a root something."""
        for root in self._roots.values():
            if root.ticket == ticket:
                root.tell(message)

    def _forget(self, root: VirtualRoot) -> None:
        self._roots.pop(root.name, None)
