"""What every cluster offers: allocations of nodes, and nodes that run tasks.

A node is bound to one grant. Every answer carries the ticket of the attempt it belongs to, so an
answer that comes late, from a node that was given up or lost, is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from qtide.core.errors import NodeUnusable, PhaseError, TimedOut
from qtide.core.job import NOTHING, Imported, JobContext
from qtide.core.world.world import Future, World


class NodeTask(Protocol):
    """What a node is given to do; a program's tasks have this shape."""

    @property
    def name(self) -> str:
        """Its name in the ledger."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function that is called."""

    @property
    def args(self) -> tuple[Any, ...]:
        """Its arguments."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """Its keyword arguments."""

    @property
    def nodes(self) -> int:
        """How many nodes it runs on at the same time (SPMD)."""

    @property
    def mpi(self) -> bool:
        """Whether its ranks get a communicator."""

    @property
    def limit(self) -> float | None:
        """Seconds that it may run; None if there is no limit."""


TRIES = 3
"""How often nodes are asked for whose agents do not start."""


@dataclass(frozen=True)
class Work:
    """A task, or one rank of an SPMD task, as it is sent to a node."""

    job: JobContext
    task: NodeTask
    key: str
    rank: int = 0
    gang: str = ""
    """The name that the ranks of this attempt at an MPI task share."""

    @property
    def mpi_rank(self) -> dict[str, Any] | None:
        """What a rank of an MPI task needs to meet the others; None for every other task."""
        if not self.task.mpi:
            return None
        meeting = self.job.values.folder.absolute() / "mpi" / self.gang
        return {"rank": self.rank, "size": self.task.nodes, "meeting": str(meeting)}

    @property
    def place(self) -> tuple[str, str]:
        """Its names in the log: its place in the program, and its function."""
        return self.key, self.task.name

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keywords of the call; ranks of an SPMD task learn who they are."""
        if self.task.nodes == 1 or self.task.mpi:
            return dict(self.task.kwargs)
        return dict(self.task.kwargs) | {"rank": self.rank, "size": self.task.nodes}


class NodeLost(PhaseError):  # noqa: N818 - what happened, in the field's words
    """The node died, or was taken away, before it answered."""


class CoAllocatable(Protocol):
    """A resource that is granted together with nodes, or not at all: a QPU."""

    def take(self, job: JobContext) -> Any | None:
        """Take it now; None if that is not possible."""

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever it may have become possible."""


class Host(Protocol):
    """Has the agents of nodes: a cluster, or an allocation of one."""

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Let the node work; its answer goes to `node.deliver`."""

    def interrupt(self, node: Node) -> None:
        """End what the node is doing at once, whatever that is."""

    async def renew(self, node: Node, job: JobContext) -> None:
        """Return when a node that was interrupted can work again; NodeUnusable if it never will."""


class Node:
    """A node, for the duration of one grant."""

    _tickets = count(1)

    def __init__(self, name: str, world: World, host: Host) -> None:
        self.name = name
        self.refused = 0
        self._world = world
        self._host = host
        self._interrupted = False
        self._pending: tuple[int, Future[Any]] | None = None
        self._gone = ""
        self.dirty = False
        """Whether a task may still run on it that nobody waits for any more."""
        self.importing = 0.0
        """Seconds of its last task in which it only loaded modules."""
        self._imported = NOTHING
        self.lost: Future[str] = world.future()

    async def run(self, work: Work) -> Any:
        """The result of a task; raises what the task raised, TimedOut or NodeLost."""
        if self._interrupted and not self._gone:
            await self._renew(work.job)
        if self._gone:
            raise NodeLost(f"node {self.name} {self._gone}")
        ticket, answer = next(Node._tickets), self._world.future()
        self._pending = (ticket, answer)
        with work.job.ledger.span("busy", f"node/{self.name}", work.task.name) as busy:
            limit = work.task.limit
            alarm = None
            if limit is not None:
                alarm = self._world.alarm(limit, lambda: self._time_out(ticket, work))
            try:
                self._host.send(self, ticket, work)
                return await answer
            except CancelledError:
                self.dirty = True
                raise
            finally:
                self._pending = None
                if alarm is not None:
                    alarm.cancel()
                self._book(work, busy.start)

    def _time_out(self, ticket: int, work: Work) -> None:
        """A task cannot be asked to stop while compiled code runs, so its process is ended."""
        if self._pending is None or self._pending[0] != ticket or self._pending[1].done():
            return
        name, limit = work.task.name, work.task.limit
        error = TimedOut(f"the task {name} ran for longer than its limit of {limit:g} s")
        error.add_note(f"in the task {name} on node {self.name}")
        self._interrupted = True
        self._host.interrupt(self)
        self._pending[1].set_exception(error)

    async def _renew(self, job: JobContext) -> None:
        """Start the node again after a task was ended: only now, as it may not be needed again."""
        began = job.ledger.clock()
        renewal: Future[Any] = self._world.start(self._host.renew(self, job))
        try:
            await self._world.first_of([renewal, self.lost])
        finally:
            await self._world.cancel([renewal])  # unless it has ended
            job.ledger.enter("starting", f"node/{self.name}", began, job.ledger.clock())
        try:
            if not renewal.cancelled():
                renewal.result()
                self._interrupted = False
        except NodeUnusable:
            self.lose("did not start again after a task had to be ended")

    def deliver(
        self,
        ticket: int,
        result: Any = None,
        error: BaseException | None = None,
        imported: Imported = NOTHING,
    ) -> bool:
        """Take an answer of the agent; False if it is not the one that is waited for."""
        if self._pending is None or self._pending[0] != ticket or self._pending[1].done():
            self.refused += 1
            return False
        self._imported = imported
        if error is None:
            self._pending[1].set_result(result)
        else:
            self._pending[1].set_exception(error)
        return True

    def _book(self, work: Work, began: float) -> None:
        """Record the part of a task that went into imports as starting, and learn from it."""
        imported, self._imported = self._imported, NOTHING
        self.importing = self._world.counted(imported.seconds)
        if imported.seconds:
            work.job.preparation.learn(imported.by(self._world.counted))
            ledger, lane = work.job.ledger, f"node/{self.name}"
            end = min(began + self.importing, ledger.clock())
            ledger.enter("starting", lane, began, end, work.task.name)

    def lose(self, why: str) -> None:
        """Tell whoever waits for the node that it is gone, and accept no more answers."""
        if self._gone:
            return
        self._gone = why
        self.lost.set_result(why)
        if self._pending is not None and not self._pending[1].done():
            self.dirty = True
            self._pending[1].set_exception(NodeLost(f"node {self.name} {why}"))


class Allocation(ABC):
    """Nodes granted together; they are given back together."""

    def __init__(self, nodes: Sequence[Node], granted: float, co_allocated: Any = None) -> None:
        self.nodes = tuple(nodes)
        self.granted = granted
        self._co_allocated = co_allocated

    def take_co_allocated(self) -> Any:
        """What was granted together with the nodes; from now on it is the taker's to give back."""
        taken, self._co_allocated = self._co_allocated, None
        return taken

    @abstractmethod
    async def ready(self) -> None:
        """Return when all nodes can take a task; NodeUnusable if one never will."""

    @abstractmethod
    def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Coroutine[Any, Any, Process]:
        """Start a command on a node that has no agent, with these environment variables added."""

    @abstractmethod
    def release(self) -> Coroutine[Any, Any, None]:
        """Give the nodes back; twice does no harm."""


@dataclass(eq=False)
class NodeRequest:
    """What a job asks of a cluster.

    With `least`, a request that has waited for `patience` seconds takes fewer nodes, down to
    `least`; with a `least` of 0 it then ends with what there is, be it nothing. What is to be
    co-allocated is granted at the same moment as the nodes.
    """

    job: JobContext
    nodes: int
    least: int | None = None
    patience: float = 0.0
    co_allocate: CoAllocatable | None = None

    @property
    def needed(self) -> int:
        """The fewest nodes that it can be granted with."""
        return self.nodes if self.least is None else min(self.least, self.nodes)


class Cluster(ABC):
    """Gives allocations of nodes."""

    size: int
    keeps_agents = False
    """Whether the process of a node outlives a grant, and with it what it has loaded."""

    async def request(self, job: JobContext, nodes: int, **terms: Any) -> Allocation:
        """Wait for nodes that are ready to work; the terms are those of `NodeRequest`.

        If an agent does not start, the nodes go back, and others are asked for.
        """
        wanted = NodeRequest(job, nodes, **terms)
        for left in reversed(range(TRIES)):
            allocation = await self.grant(wanted)
            try:
                await self._until_ready(job, allocation)
            except BaseException as error:
                await allocation.release()
                if not (isinstance(error, NodeUnusable) and left):
                    raise
            else:
                break
        return allocation

    async def _until_ready(self, job: JobContext, allocation: Allocation) -> None:
        """Wait until the nodes can work at full speed, and record that time as starting."""
        began = job.ledger.clock()
        try:
            await allocation.ready()
            if allocation.nodes:
                job.preparation.started(job.ledger.clock() - began)
        finally:
            end = job.ledger.clock()
            for node in allocation.nodes if end > began else ():
                job.ledger.enter("starting", f"node/{node.name}", began, end)

    @abstractmethod
    async def grant(self, request: NodeRequest) -> Allocation:
        """Wait for nodes."""

    @abstractmethod
    def expected_wait(self, nodes: int) -> float:
        """Seconds that a request for `nodes` would wait now, as far as is known."""

    @abstractmethod
    def waits_seen(self) -> list[float]:
        """Seconds that recent requests waited in the queue."""

    @abstractmethod
    def forget(self) -> None:
        """Ignore the waits of earlier jobs in `expected_wait`."""

    @abstractmethod
    async def close(self) -> None:
        """End everything that runs on the cluster for us."""
