"""split: a chain of heterogeneous allocations, nodes and QPU together, one quantum block each."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from qtide.backends.leases.qpu import Lease
from qtide.core.world.world import Future
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Assignment, Strategy


class Split(Strategy):
    """A block begins with a quantum phase and goes on with the classical phases after it.

    Each block queues for its nodes and the QPU at the same time. The QPU is given back the moment
    its part is over, while the classical part goes on; the journal carries the state across.
    """

    summary = "a chain of heterogeneous allocations; the QPU is given back as its part ends"
    rank = 30

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        super().__init__(assignment, options)
        self._block: Future[Lease] | None = None

    async def open(self) -> None:
        """What comes before the first quantum phase is a block of nodes alone."""
        self.pool.join(await self.request(self.nodes))

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on the nodes of the block, once it is there."""
        block = self._block
        if block is not None:
            await self.site.world.settled([block])
            block.result()
        return await self.pool.run(phase, key)

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """The next block; beside phases that use the present one, a lease alone."""
        if self.pool.load or self._block is not None:
            async with self.leased() as lease:
                return await self.solve(lease, phase, key)
        lease = await self._next_block()
        try:
            return await self.solve(lease, phase, key)
        finally:
            lease.release()

    async def wait_for_qpu(self) -> float:
        """A block waits for its nodes as well."""
        nodes = 0.0 if self.pool.load else self.forecast.lead(self.nodes)
        return max(nodes, await super().wait_for_qpu())

    async def _next_block(self) -> Lease:
        world = self.site.world
        block = self._block = world.start(self._queue())
        try:
            await world.settled([block])
        except CancelledError:
            await world.cancel([block])
            raise
        finally:
            self._block = None
        return block.result()

    async def _queue(self) -> Lease:
        """End the block before, and wait for the new one."""
        await self.pool.release_all()
        block = await self.request(self.nodes, co_allocate=self.site.qpu)
        lease: Lease = block.take_co_allocated()
        self.pool.join(block)
        return lease
