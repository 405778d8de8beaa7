"""The first-come-first-served queue shared by the local and the simulated cluster."""

from __future__ import annotations

from abc import abstractmethod
from asyncio import CancelledError
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.backends.clusters.cluster import (
    Allocation,
    Cluster,
    CoAllocatable,
    Message,
    Node,
    NodeRequest,
    Work,
)
from qtide.core.errors import NotEnoughNodes, UsageError
from qtide.core.forecasts import Waits
from qtide.core.job import JobContext
from qtide.core.ledger import Span
from qtide.core.world.world import Alarm, Future, World


@dataclass(eq=False)
class PendingRequest:
    """A queued request."""

    request: NodeRequest
    answer: Future[FifoAllocation]
    impatient: bool = False


class FifoAllocation(Allocation):
    """Nodes of a first-come-first-served cluster."""

    def __init__(
        self, cluster: FifoCluster, job: JobContext, nodes: Sequence[Node], co_allocated: Any = None
    ) -> None:
        super().__init__(nodes, cluster.world.now(), co_allocated)
        self._cluster = cluster
        self._job = job
        self._spans = {node: node.held_by(job) for node in nodes}
        self._release: Future[None] | None = None

    async def ready(self) -> None:
        """Prepare all nodes concurrently."""
        await self._cluster.all_ready(self.nodes, self._job)

    def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Coroutine[Any, Any, Process]:
        """Start a command by means of the cluster."""
        return self._cluster.launch(node, command, variables)

    async def return_lost(self, node: Node) -> None:
        """Release a lost node; whoever asks next may get it, with a new agent."""
        if self._release is None and node in self._spans:
            await self._cluster.retire({node: self._spans.pop(node)})

    def release(self) -> Coroutine[Any, Any, None]:
        """Release the nodes. The release continues even if the caller is cancelled."""
        if self._release is None:
            if self._co_allocated is not None:
                self._co_allocated.release()
            self._release = self._cluster.world.start(self._cluster.retire(self._spans))
        return self._cluster.world.settled([self._release])


class FifoCluster(Cluster):
    """A fixed set of nodes behind one queue; subclasses start, run and stop the nodes."""

    keeps_agents = True

    def __init__(
        self, world: World, names: Sequence[str], latency: float = 0.0, withdrawal: float = 0.0
    ) -> None:
        self.world = world
        self.size = len(names)
        self._latency = latency
        """Seconds until a request is first considered."""
        self._withdrawal = withdrawal
        """Seconds that a withdrawn request takes to leave the queue."""
        self.granted: dict[str, Node] = {}
        self._free: deque[str] = deque(names)
        self._queue: deque[PendingRequest] = deque()
        self._waits = Waits(world.now)
        self._watched: set[CoAllocatable] = set()

    async def grant(self, request: NodeRequest) -> FifoAllocation:
        """Wait in the queue until nodes are granted."""
        self._refuse_if_impossible(request)
        self._watch(request.co_allocate)
        span = request.job.ledger.span("wait", "nodes", f"{request.nodes} nodes")
        with span, self._waits.standing():
            return await self._stand(request)

    def expected_wait(self, nodes: int) -> float:
        """Only the latency while enough nodes are free, otherwise the forecast."""
        if len(self._free) >= nodes + sum(each.request.nodes for each in self._queue):
            return self._latency
        return max(self._latency, self._waits.expected())

    def waits_seen(self) -> tuple[float, ...]:
        """Queue waits of recent requests, in seconds."""
        return self._waits.seen()

    def others_waiting(self, job: JobContext) -> int:
        """Number of requests of other jobs in the queue, without those that can do with nothing."""
        requests = [each.request for each in self._queue]
        return sum(each.job is not job and each.needed > 0 for each in requests)

    def forget(self) -> None:
        """Make `expected_wait` ignore the waits of earlier jobs."""
        self._waits.forget()

    @abstractmethod
    async def ready(self, node: Node, job: JobContext) -> None:
        """Wait until the node can take a task of the job."""

    async def launch(
        self, node: Node, command: Sequence[str], variables: Mapping[str, str]
    ) -> Process:
        """Start a command on a node; `variables` extend the environment."""
        raise UsageError("this cluster does not start commands; use local or slurm")

    @abstractmethod
    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Send work to the node; the answer goes to `node.deliver`."""

    @abstractmethod
    def interrupt(self, node: Node) -> None:
        """Stop whatever the node is doing, immediately."""

    def tell(self, node: Node, ticket: int, message: Message) -> None:
        """Tell a task that runs on the node something; here, nobody listens."""

    def end_task(self, node: Node, ticket: int) -> None:
        """End a task that has a part of the node; here, its answer will be rejected."""

    def renew(self, node: Node, job: JobContext) -> Coroutine[Any, Any, None]:
        """Make the node ready again, as at the beginning of a grant."""
        return self.ready(node, job)

    @abstractmethod
    async def stopped(self, node: Node) -> bool:
        """Wait until nothing of ours runs on the node; False if the node is lost for good."""

    async def all_ready(self, nodes: Sequence[Node], job: JobContext) -> None:
        """Wait until all nodes of a grant can take a task of the job."""
        await self.world.all_of([self.ready(node, job) for node in nodes])

    async def retire(self, held: Mapping[Node, Span]) -> None:
        """Take back nodes, each as soon as it has stopped."""
        await self.world.all_of([self.retire_one(*each) for each in held.items()])

    async def retire_one(self, node: Node, held: Span) -> None:
        """Return one node to the free nodes once it has stopped."""
        node.lose("was given back")
        try:
            lives = await self.stopped(node)
        finally:
            held.close()
            del self.granted[node.name]
        if lives:
            self.take_back(node.name)

    def take_back(self, name: str) -> None:
        """Add a node to the free nodes."""
        self._free.append(name)
        self._serve()

    def lose(self, name: str) -> None:
        """Remove a dead node from the cluster, and notify its holder."""
        self.size -= 1
        if name in self._free:
            self._free.remove(name)
        else:
            self.granted[name].lose("died")
        for pending in list(self._queue):
            try:
                self._refuse_if_impossible(pending.request)
            except NotEnoughNodes as error:
                self._queue.remove(pending)
                pending.answer.set_exception(error)
        self._serve()

    def gain(self, name: str) -> None:
        """Add a recovered node."""
        self.size += 1
        self.take_back(name)

    def latency_of(self, request: NodeRequest) -> float:
        """Seconds until a request is first considered."""
        return self._latency

    async def _stand(self, request: NodeRequest) -> FifoAllocation:
        latency = self.latency_of(request)
        if latency:
            await self.world.sleep(latency)
            self._refuse_if_impossible(request)
        return await self.queue_up(request)

    async def queue_up(self, request: NodeRequest) -> FifoAllocation:
        """Queue the request and wait until nodes are granted."""
        pending = PendingRequest(request, self.world.future())
        self._queue.append(pending)
        alarm = None if request.least is None else self.world.start(self._lose_patience(pending))
        self._serve()
        return await self._grant_of(pending, alarm)

    async def _grant_of(self, pending: PendingRequest, alarm: Alarm | None) -> FifoAllocation:
        """Wait for the answer to a request; withdraw the request if the wait is cancelled."""
        try:
            return await pending.answer
        except CancelledError:
            if self._withdrawn(pending):
                await self.world.sleep(self._withdrawal)
            elif pending.answer.done() and not pending.answer.cancelled():
                await pending.answer.result().release()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def _withdrawn(self, pending: PendingRequest) -> bool:
        """Remove the request from the queue; False if it was no longer queued."""
        if pending not in self._queue:
            return False
        self._queue.remove(pending)
        self._serve()
        return True

    async def _lose_patience(self, pending: PendingRequest) -> None:
        """Let a request accept fewer nodes once its patience is over; end it if it needs none."""
        await self.world.sleep(pending.request.patience)
        pending.impatient = True
        self._serve()
        if pending.request.least == 0 and pending in self._queue:
            self._queue.remove(pending)
            self._answer(pending, 0)
            self._serve()

    def _serve(self) -> None:
        """Grant requests in order; a request whose QPU is not available lets others pass."""
        if self._queue and self._share(self._queue[0]) is None:
            return  # avoids copying the queue, which may be long
        for pending in list(self._queue):
            share = self._share(pending)
            if share is None:
                return
            wanted = pending.request.co_allocate
            taken = wanted.take(pending.request.job) if wanted else None
            if wanted is None or taken is not None:
                self._queue.remove(pending)
                self._answer(pending, share, taken)

    def _share(self, pending: PendingRequest) -> int | None:
        """Number of nodes that a request gets now; None if it has to wait."""
        request, free = pending.request, len(self._free)
        if free >= request.nodes:
            return request.nodes
        enough = pending.impatient and request.least is not None and free >= request.least
        return free if enough else None

    def _answer(self, pending: PendingRequest, share: int, co_allocated: Any = None) -> None:
        names = [self._free.popleft() for _ in range(share)]
        nodes = [Node(name, self.world, self, self.kind) for name in names]
        self.granted |= {node.name: node for node in nodes}
        job = pending.request.job
        pending.answer.set_result(FifoAllocation(self, job, nodes, co_allocated))

    def _watch(self, wanted: CoAllocatable | None) -> None:
        if wanted is not None and wanted not in self._watched:
            self._watched.add(wanted)  # not its id, which may be reused once a QPU is gone
            wanted.watch(self._serve)

    def _refuse_if_impossible(self, request: NodeRequest) -> None:
        needed = request.nodes if request.least is None else request.least
        if needed > self.size:
            raise NotEnoughNodes(
                f"{request.job.name} needs {needed} nodes, but the cluster has {self.size}; "
                "ask for fewer with --nodes, or name a larger cluster"
            )
