"""First come, first served: the queue that the embedded and the simulated cluster share."""

from __future__ import annotations

from abc import abstractmethod
from asyncio import CancelledError
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from qtide.clusters.cluster import Allocation, Beside, Cluster, Node, NotEnoughNodes, Work
from qtide.jobs.job import Job
from qtide.ledger.ledger import Span
from qtide.world.world import Future, World

RECENT = 8
"""How many past waits count for the expected one."""


@dataclass(eq=False)
class Ask:
    """A request in the queue."""

    job: Job
    nodes: int
    least: int | None
    beside: Beside | None
    since: float
    answer: Future[FifoAllocation]
    impatient: bool = False


class FifoAllocation(Allocation):
    """Nodes of a first-come-first-served cluster."""

    def __init__(
        self, cluster: FifoCluster, job: Job, nodes: Sequence[Node], beside: Any = None
    ) -> None:
        super().__init__(nodes, cluster.world.now(), beside)
        self._cluster = cluster
        self._spans = {node: job.ledger.span("held", f"node/{node.name}") for node in nodes}
        self._release: Future[None] | None = None

    def release(self) -> Coroutine[Any, Any, None]:
        """Give the nodes back. The release goes on even if whoever waits for it is cancelled."""
        if self._release is None:
            if self._beside is not None:
                self._beside.release()
            self._release = self._cluster.world.start(self._retire())
        return self._cluster.world.settled([self._release])

    async def _retire(self) -> None:
        cluster = self._cluster
        await cluster.world.all_of([cluster.retire(*each) for each in self._spans.items()])


class FifoCluster(Cluster):
    """A fixed set of nodes behind one queue. How a node lives and works is for its heirs."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self.world = world
        self.size = len(names)
        self.refused = 0
        self.granted: dict[str, Node] = {}
        self._free: deque[str] = deque(names)
        self._queue: deque[Ask] = deque()
        self._waits: deque[float] = deque(maxlen=RECENT)
        self._watched: set[Beside] = set()

    async def request(
        self,
        job: Job,
        nodes: int,
        *,
        least: int | None = None,
        patience: float = 0.0,
        beside: Beside | None = None,
    ) -> Allocation:
        """Stand in the queue, then wait until the nodes are ready."""
        ask = Ask(job, nodes, least, beside, self.world.now(), self.world.future())
        self._refuse_if_hopeless(ask)
        self._watch(beside)
        with job.ledger.span("wait", "nodes", f"{nodes} nodes"):
            allocation = await self._stand(ask, patience)
        try:
            await self.world.all_of([self.ready(node) for node in allocation.nodes])
        except BaseException:
            await allocation.release()
            raise
        return allocation

    def expected_wait(self, nodes: int) -> float:
        """None while there are enough free; else as long as the last ones and the first waited."""
        if len(self._free) >= nodes + sum(ask.nodes for ask in self._queue):
            return 0.0
        now = self.world.now()
        return max([now - ask.since for ask in self._queue] + [_mean(self._waits)])

    def forget(self) -> None:
        """Let the waits of earlier jobs no longer count for the expected one."""
        self._waits.clear()

    @abstractmethod
    async def ready(self, node: Node) -> None:
        """Return when the node can take a task."""

    @abstractmethod
    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Let the node work; its answer goes to `node.deliver`."""

    @abstractmethod
    async def stopped(self, node: Node) -> bool:
        """Return when the node has nothing of ours left; False if it is lost for good."""

    async def retire(self, node: Node, held: Span) -> None:
        """Take a node back into the free ones."""
        node.lose("was given back")
        try:
            lives = await self.stopped(node)
        finally:
            held.close()
            del self.granted[node.name]
            self.refused += node.refused
        if lives:
            self._free.append(node.name)
            self._serve()

    def lose(self, name: str) -> None:
        """The node is dead: the cluster has one less, and whoever holds it hears so."""
        self.size -= 1
        if name in self._free:
            self._free.remove(name)
        else:
            self.granted[name].lose("died")
        for ask in list(self._queue):
            try:
                self._refuse_if_hopeless(ask)
            except NotEnoughNodes as error:
                self._queue.remove(ask)
                ask.answer.set_exception(error)
        self._serve()

    def gain(self, name: str) -> None:
        """A node is there again."""
        self.size += 1
        self._free.append(name)
        self._serve()

    async def _stand(self, ask: Ask, patience: float) -> FifoAllocation:
        self._queue.append(ask)
        alarm = None if ask.least is None else self.world.start(self._hurry(ask, patience))
        try:
            self._serve()
            return await ask.answer
        except CancelledError:
            if ask in self._queue:
                self._queue.remove(ask)
                self._serve()
            elif ask.answer.done() and not ask.answer.cancelled():
                await ask.answer.result().release()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    async def _hurry(self, ask: Ask, patience: float) -> None:
        """After `patience`, the request takes fewer nodes; one that can do with none ends."""
        await self.world.sleep(patience)
        ask.impatient = True
        self._serve()
        if ask.least == 0 and ask in self._queue:
            self._queue.remove(ask)
            self._grant(ask, 0)
            self._serve()

    def _serve(self) -> None:
        """Grant what can be granted, in order. Who waits for a QPU as well lets others pass."""
        for ask in list(self._queue):
            share = self._share(ask)
            if share is None:
                return
            beside = ask.beside.take(ask.job) if ask.beside else None
            if ask.beside is None or beside is not None:
                self._queue.remove(ask)
                self._grant(ask, share, beside)

    def _share(self, ask: Ask) -> int | None:
        """How many nodes a request gets now; None if it has to wait."""
        if len(self._free) >= ask.nodes:
            return ask.nodes
        enough = ask.impatient and ask.least is not None and len(self._free) >= ask.least
        return len(self._free) if enough else None

    def _grant(self, ask: Ask, share: int, beside: Any = None) -> None:
        nodes = [Node(self._free.popleft(), self.world, self.send) for _ in range(share)]
        self.granted |= {node.name: node for node in nodes}
        self._waits.append(self.world.now() - ask.since)
        ask.answer.set_result(FifoAllocation(self, ask.job, nodes, beside))

    def _watch(self, beside: Beside | None) -> None:
        if beside is not None and beside not in self._watched:
            self._watched.add(beside)  # not its id: that of a QPU that is gone may come again
            beside.watch(self._serve)

    def _refuse_if_hopeless(self, ask: Ask) -> None:
        needed = ask.nodes if ask.least is None else ask.least
        if needed > self.size:
            raise NotEnoughNodes(
                f"{ask.job.name} needs {needed} nodes, but the cluster has {self.size}; "
                "ask for fewer with --nodes, or name a larger cluster"
            )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
