"""The nodes of one companion, with an agent on each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from qtide.clusters.cluster import Allocation, Node, Work
from qtide.clusters.link import AgentFailed, Link, PreparationFailed
from qtide.errors import NodeUnusable
from qtide.jobs.job import Job
from qtide.jobs.preparation import Preparation
from qtide.slurm.companion import Companion
from qtide.system.child import Child
from qtide.world.world import Future, World

STEP_LIMIT = 30.0
"""Seconds within which Slurm has to end a step."""

Start = Callable[[Companion, str, Preparation], Awaitable[Child]]
"""Starts the agent of a node of a companion, with what it is to prepare."""


class SlurmAllocation(Allocation):
    """A companion, or no nodes at all if the request accepts that."""

    def __init__(
        self, world: World, job: Job, companion: Companion | None, start: Start, silence: float
    ) -> None:
        names = companion.nodes if companion else []
        nodes = [Node(name, world, self) for name in names]
        super().__init__(nodes, world.now())
        self._world = world
        self._companion = companion
        self._job = job
        self._start_agent = start
        self._silence = silence
        self._links: dict[str, Link] = {}
        self._ending: dict[str, Future[None]] = {}
        """Steps that were interrupted, by the names of their nodes."""
        label = str(companion.job) if companion else ""
        self._held = {node: job.ledger.span("held", f"node/{node.name}", label) for node in nodes}
        self._released: Future[None] | None = None
        self._watch = world.start(self._lose_when_gone())

    def co_allocate(self, taken: Any) -> bool:
        """Add what was granted together with the nodes; False if nothing was."""
        self._co_allocated = taken
        return taken is not None

    async def ready(self) -> None:
        """Start all agents, and return when each is prepared."""
        await self._world.all_of([self._start(node) for node in self.nodes])

    def release(self) -> Coroutine[Any, Any, None]:
        """Give the nodes back. The release continues even if its caller is cancelled."""
        if self._released is None:
            if self._co_allocated is not None:
                self._co_allocated.release()
            self._released = self._world.start(self._give_back())
        return self._world.settled([self._released])

    @property
    def released(self) -> bool:
        """Whether everything has been given back."""
        return self._released is not None and self._released.done()

    def send(self, node: Node, ticket: int, work: Work) -> None:
        """Hand the task to the node's agent."""
        self._links[node.name].send(ticket, work)

    def interrupt(self, node: Node) -> None:
        """End the step of a node's agent; the companion keeps the node."""
        link = self._links.pop(node.name)
        link.node = None
        link.hang_up()
        self._ending[node.name] = self._world.start(_ended(link))

    async def renew(self, node: Node, job: Job) -> None:
        """Start another step, once the one before has ended."""
        await self._world.settled([self._ending.pop(node.name)])
        await self._start(node)

    async def _start(self, node: Node) -> None:
        assert self._companion is not None
        child = await self._start_agent(self._companion, node.name, self._job.preparation)
        link = self._links[node.name] = Link(child, node.name, self._job.log, self._silence)
        try:
            await link.greet(self._job.preparation)
        except AgentFailed as error:
            if not isinstance(error, PreparationFailed):
                self._companion.silent.add(node.name)
            raise NodeUnusable(f"the agent of node {node.name} did not start") from error
        link.node = node
        node.lost.add_done_callback(lambda _: self._world.start(self._disown(node)))

    async def _disown(self, node: Node) -> None:
        """Stop counting a lost node as held, if Slurm has already taken it from the companion."""
        if self._released is None and self._companion and not await self._companion.has(node.name):
            self._held[node].close()

    async def _lose_when_gone(self) -> None:
        """Notice if the companion is cancelled or reaches its time limit."""
        if self._companion is not None:
            why = await self._companion.gone()
            for node in self.nodes:
                node.lose(f"was taken away by Slurm ({why})")

    async def _give_back(self) -> None:
        await self._world.cancel([self._watch])
        for node in self.nodes:
            node.lose("was given back")
        for link in self._links.values():  # Slurm's signal does not reach a step that is starting
            link.hang_up()
        try:
            if self._companion is not None:
                self._companion.silent |= {n for n, link in self._links.items() if link.silent}
                await self._companion.end()
        finally:
            for span in self._held.values():
                span.close()
            # not earlier: a slurmstepd whose srun is gone keeps its node for seconds
            await self._world.all_of([link.kill() for link in self._links.values()])
            await self._world.settled(self._ending.values())


async def _ended(link: Link) -> None:
    """Wait until a step is over: srun ends with it, unless the node does not respond."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STEP_LIMIT):
            await link.child.ended()
    await link.kill()
