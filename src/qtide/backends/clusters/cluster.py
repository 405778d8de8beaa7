"""The interface of every cluster: allocations of nodes, and nodes that run tasks.

A node belongs to one grant. Every answer carries the ticket of its attempt, so a late answer from
a node that was released or lost is rejected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from qtide.core.errors import NodeLost, NodeUnusable, TimedOut
from qtide.core.job import NOTHING, CommandSettings, Imported, JobContext
from qtide.core.ledger import Span
from qtide.core.resources import UNKNOWN, BillingWeights, NodeKind, NodePart, Room
from qtide.core.world.world import Alarm, Future, World
from qtide.programs.phase import TaskAttempt, TimeSpent


class NodeTask(Protocol):
    """A task that a node can run; a program's tasks implement this protocol."""

    @property
    def name(self) -> str:
        """The task's name in the ledger."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function to call."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The function's positional arguments."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The function's keyword arguments."""

    @property
    def nodes(self) -> int:
        """The number of nodes that the task runs on at the same time (SPMD)."""

    @property
    def mpi(self) -> bool:
        """Whether the ranks get an MPI communicator."""

    @property
    def malleable(self) -> bool:
        """Whether the number of its nodes may change while it runs."""

    @property
    def limit(self) -> float | None:
        """Maximum run time in seconds; None for no limit."""

    def keywords(self, attempt: TaskAttempt) -> dict[str, Any]:
        """The keyword arguments of one call."""

    def spent(self, result: Any) -> list[TimeSpent]:
        """The seconds of each call, if it stands for several that ran one after the other."""


Message = Mapping[str, Any]
"""What a task that runs and its driver tell each other, as JSON."""

TRIES = 3
"""How often to request nodes before giving up on agents that do not start."""


@dataclass(frozen=True)
class Work:
    """A task, or one rank of an SPMD task, to be sent to a node."""

    job: JobContext
    task: NodeTask
    key: str
    rank: int = 0
    gang: str = ""
    """The name shared by all ranks of this attempt, by which they meet; empty in virtual time."""
    slot: NodePart | None = None
    """The part of the node that the task has; None for the whole node."""
    member: Message | None = None
    """What a process of a malleable task needs to know; None for any other task."""
    hear: Callable[[Message], None] = lambda _: None
    """Called with what the task says while it runs."""

    @property
    def mpi_rank(self) -> dict[str, Any] | None:
        """What an MPI rank needs to find the other ranks; None if this is not an MPI task."""
        if not self.task.mpi or self.member is not None:
            return None
        meeting = self.job.values.folder.absolute() / "mpi" / self.gang
        return {"rank": self.rank, "size": self.task.nodes, "meeting": str(meeting)}

    @property
    def place(self) -> tuple[str, str]:
        """The names used in the log: the task's place in the program, and its function."""
        return self.key, self.task.name

    @property
    def kwargs(self) -> dict[str, Any]:
        """The call's keyword arguments."""
        return self.task.keywords(self)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.job.values.folder.absolute().parent

    @property
    def settings(self) -> CommandSettings:
        """The run's settings for commands."""
        return self.job.commands


class CoAllocatable(Protocol):
    """A resource, such as a QPU, that is granted either together with nodes or not at all."""

    def take(self, job: JobContext) -> Any | None:
        """Take the resource now; None if it is not available."""

    def watch(self, freed: Callable[[], None]) -> None:
        """Call `freed` whenever the resource may have become available."""


class Host(Protocol):
    """Owner of the nodes' agents: a cluster, or one of its allocations."""

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Send work to the node; the answer goes to `node.deliver`."""

    def interrupt(self, node: Node) -> None:
        """Stop whatever the node is doing, immediately."""

    def tell(self, node: Node, ticket: int, message: Message) -> None:
        """Tell a task that runs on the node something."""

    def end_task(self, node: Node, ticket: int) -> None:
        """End a task that has a part of the node, immediately, and nothing else there."""

    async def renew(self, node: Node, job: JobContext) -> None:
        """Wait until an interrupted node can work again; raise NodeUnusable if it never will."""


@dataclass(eq=False, slots=True)
class Attempt:
    """A task that a node runs: the future of its answer, and what it had to import."""

    work: Work
    answer: Future[Any]
    imported: Imported = NOTHING
    alarm: Alarm | None = None
    """What ends it at its limit."""


class Node:
    """A node, for the duration of one grant. It runs a task, or several on parts of it."""

    _tickets = count(1)

    def __init__(self, name: str, world: World, host: Host, kind: NodeKind = UNKNOWN) -> None:
        self.name = name
        self.refused = 0
        self.room = Room(kind)
        """What of the node no task has taken; the pool that holds the node keeps this account."""
        self._world = world
        self._host = host
        self._interrupted = False
        self._renewing: Future[None] | None = None
        self._attempts: dict[int, Attempt] = {}
        self._gone = ""
        self.dirty = False
        """Whether an abandoned task may still be running on the node."""
        self.importing = 0.0
        """Seconds that the task that ended last spent importing modules."""
        self.lost: Future[str] = world.future()

    def held_by(self, job: JobContext, label: str = "") -> Span:
        """Record in the job's ledger that it holds the node, until the span is closed."""
        kind = self.room.kind
        lane = f"node/{self.name}"
        return job.ledger.span("held", lane, label, part=kind.size, rate=kind.rate)

    async def run(self, work: Work) -> Any:
        """Run a task and return its result; raise the task's exception, TimedOut or NodeLost."""
        slot = work.slot
        while self._interrupted and not self._gone:
            await self._renew(work.job)
        if self._gone:
            raise NodeLost(f"node {self.name} {self._gone}")
        ticket, attempt = next(Node._tickets), Attempt(work, self._world.future())
        self._attempts[ticket] = attempt
        part = None if slot is None else (len(slot.cores), len(slot.gpus))
        counted = self._world.counted
        rate = self.room.kind.part_rate(slot)
        lane, name = f"node/{self.name}", work.task.name
        with work.job.ledger.span("busy", lane, name, work.key, part, rate) as busy:
            if slot is None or self._world.is_virtual:  # else its process may have to start first
                self.begun(ticket)
            try:
                self._host.send(self, ticket, work)
                result = await attempt.answer
            except CancelledError:
                if slot is None:
                    self.dirty = True
                else:
                    self._host.end_task(self, ticket)
                raise
            else:
                busy.division = [(name, counted(each)) for name, each in work.task.spent(result)]
                return result
            finally:
                del self._attempts[ticket]
                if attempt.alarm is not None:
                    attempt.alarm.cancel()
                self._book(work, busy.start, attempt.imported)

    def begun(self, ticket: int) -> None:
        """Count a task's limit, if it has one, from now."""
        attempt = self._attempts.get(ticket)
        if attempt is not None and (limit := attempt.work.task.limit) is not None:
            attempt.alarm = self._world.alarm(limit, partial(self._time_out, ticket, attempt.work))

    def _time_out(self, ticket: int, work: Work) -> None:
        """Kill the task's process: a task cannot be asked to stop while it runs compiled code."""
        attempt = self._attempts.get(ticket)
        if attempt is None or attempt.answer.done():
            return
        name, limit = work.task.name, work.task.limit
        error = TimedOut(f"the task {name} ran for longer than its limit of {limit:g} s")
        error.add_note(f"in the task {name} on node {self.name}")
        attempt.answer.set_exception(error)
        if work.slot is None:
            self.restart()
        else:
            self._host.end_task(self, ticket)

    def tell(self, work: Work, message: Message) -> None:
        """Tell a task something, if it still runs here."""
        for ticket, attempt in self._attempts.items():
            if attempt.work is work:
                self._host.tell(self, ticket, message)

    def restart(self) -> None:
        """Kill whatever runs on the node; it starts anew for its next task."""
        if self._interrupted or self._gone:
            return
        self._interrupted = True
        self._host.interrupt(self)
        for attempt in self._attempts.values():
            if not attempt.answer.done():
                attempt.answer.set_exception(NodeLost(f"node {self.name} was restarted"))

    async def _renew(self, job: JobContext) -> None:
        """Restart an interrupted node; this is done lazily, as it may not be needed again."""
        if self._renewing is not None:  # by a task that is to run beside this one
            await self._world.settled([self._renewing])
            return
        self._renewing = self._world.future()
        began = job.ledger.clock()
        renewal: Future[Any] = self._world.start(self._host.renew(self, job))
        try:
            await self._world.first_of([renewal, self.lost])
        finally:
            await self._world.cancel([renewal])  # no effect if it has ended
            self._renewing.set_result(None)
            self._renewing = None
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
        """Accept an answer from the agent; False if it is not the expected one."""
        attempt = self._attempts.get(ticket)
        if attempt is None or attempt.answer.done():
            self.refused += 1
            return False
        attempt.imported = imported
        if error is None:
            attempt.answer.set_result(result)
        else:
            attempt.answer.set_exception(error)
        return True

    def _book(self, work: Work, began: float, imported: Imported) -> None:
        """Record the task's import time as `starting`, and remember the imported modules."""
        self.importing = self._world.counted(imported.seconds)
        if imported.seconds:
            work.job.preparation.learn(imported.by(self._world.counted))
            if work.slot is None:  # beside other tasks, the node works while one of them imports
                ledger, lane = work.job.ledger, f"node/{self.name}"
                end = min(began + self.importing, ledger.clock())
                ledger.enter("starting", lane, began, end, work.task.name)

    def lose(self, why: str) -> None:
        """Mark the node as lost: notify its waiters and accept no more answers."""
        if self._gone:
            return
        self._gone = why
        self.lost.set_result(why)
        for attempt in self._attempts.values():
            if not attempt.answer.done():
                self.dirty = True
                attempt.answer.set_exception(NodeLost(f"node {self.name} {why}"))


class Allocation(ABC):
    """Nodes that are granted together and released together."""

    def __init__(self, nodes: Sequence[Node], granted: float, co_allocated: Any = None) -> None:
        self.nodes = tuple(nodes)
        self.granted = granted
        self._co_allocated = co_allocated

    def take_co_allocated(self) -> Any:
        """Take over what was granted with the nodes; the caller must release it."""
        taken, self._co_allocated = self._co_allocated, None
        return taken

    @abstractmethod
    async def ready(self) -> None:
        """Wait until all nodes can take a task; raise NodeUnusable if one never will."""

    @abstractmethod
    def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Coroutine[Any, Any, Process]:
        """Start a command on a node that has no agent; `variables` extend the environment."""

    async def return_lost(self, node: Node) -> None:  # noqa: B027 - that is the default
        """Release a lost node before the others, so that it can be granted again.

        By default, it goes back with the others.
        """

    @abstractmethod
    def release(self) -> Coroutine[Any, Any, None]:
        """Release the nodes; a second call has no effect."""


@dataclass(eq=False)
class NodeRequest:
    """A job's request for nodes.

    If `least` is set, the request accepts fewer nodes, down to `least`, after waiting `patience`
    seconds; with `least` 0 it then ends with whatever is free, even nothing. `co_allocate` is
    granted at the same moment as the nodes.
    """

    job: JobContext
    nodes: int
    least: int | None = None
    patience: float = 0.0
    co_allocate: CoAllocatable | None = None

    @property
    def needed(self) -> int:
        """The smallest number of nodes that satisfies the request."""
        return self.nodes if self.least is None else min(self.least, self.nodes)


class Cluster(ABC):
    """Grants allocations of nodes."""

    size: int
    kind = UNKNOWN
    """What its nodes have, where all are alike."""
    keeps_agents = False
    """Whether a node's agent, with the modules it has loaded, outlives a grant."""

    async def request(self, job: JobContext, nodes: int, **terms: Any) -> Allocation:
        """Wait for nodes that are ready to work; `terms` are fields of `NodeRequest`.

        If an agent does not start, release the nodes and request others.
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
        """Wait until the nodes are ready, and record that time as `starting`."""
        began = job.ledger.clock()
        try:
            await allocation.ready()
            if allocation.nodes:
                job.preparation.started(job.ledger.clock() - began)
        finally:
            end = job.ledger.clock()
            for node in allocation.nodes if end > began else ():
                job.ledger.enter("starting", f"node/{node.name}", began, end)

    def charge(self, weights: BillingWeights) -> None:
        """Set what the site charges for its nodes, of all kinds."""
        self.kind = replace(self.kind, weights=weights)

    @property
    def kinds(self) -> Mapping[str, Cluster]:
        """The cluster's kinds of nodes, the usual one first, each as a cluster of its own."""
        return {self.kind.name: self}

    @abstractmethod
    async def grant(self, request: NodeRequest) -> Allocation:
        """Wait until nodes are granted."""

    @abstractmethod
    def expected_wait(self, nodes: int) -> float:
        """Estimated seconds that a request for `nodes` nodes would wait now."""

    @abstractmethod
    def waits_seen(self) -> tuple[float, ...]:
        """Queue waits of recent requests, in seconds."""

    def others_waiting(self, job: JobContext) -> int:
        """Number of requests of others that wait for nodes, as far as it is known."""
        return 0

    @abstractmethod
    def forget(self) -> None:
        """Make `expected_wait` ignore the waits of earlier jobs."""

    @abstractmethod
    async def close(self) -> None:
        """Stop everything that this process runs on the cluster."""


class KindsCluster(Cluster):
    """A cluster with nodes of several kinds; who names no kind gets nodes of the first.

    Each kind has a queue of its own. A job that needs several kinds at once asks for them in their
    order, so that no two jobs can each hold what the other waits for.
    """

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self._kinds = {each.kind.name: each for each in clusters}
        self._usual = clusters[0]
        self.kind = self._usual.kind
        self.keeps_agents = self._usual.keeps_agents

    @property
    def size(self) -> int:  # type: ignore[override]  # nodes may die
        """Number of nodes of the kind with the most."""
        return max(each.size for each in self._kinds.values())

    @property
    def kinds(self) -> Mapping[str, Cluster]:
        """The clusters by the names of their kinds."""
        return self._kinds

    def charge(self, weights: BillingWeights) -> None:
        """Set what the site charges for its nodes, of all kinds."""
        for each in self._kinds.values():
            each.charge(weights)
        self.kind = self._usual.kind

    async def grant(self, request: NodeRequest) -> Allocation:
        """Wait until nodes of the usual kind are granted."""
        return await self._usual.grant(request)

    def expected_wait(self, nodes: int) -> float:
        """Estimated wait for nodes of the usual kind."""
        return self._usual.expected_wait(nodes)

    def waits_seen(self) -> tuple[float, ...]:
        """Queue waits of recent requests for the usual kind."""
        return self._usual.waits_seen()

    def forget(self) -> None:
        """Make the forecasts of all kinds ignore the waits of earlier jobs."""
        for each in self._kinds.values():
            each.forget()

    async def close(self) -> None:
        """Close the clusters of all kinds."""
        for each in self._kinds.values():
            await each.close()
