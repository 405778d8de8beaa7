"""split: a chain of heterogeneous allocations (nodes and QPU), one per quantum block."""

from __future__ import annotations

from asyncio import CancelledError
from typing import Any

from qtide.backends.leases.qpu import Lease
from qtide.core.world.world import Future
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Assignment, Strategy


class Split(Strategy):
    """A block is a quantum phase and the classical phases after it.

    Each block queues for its nodes and the QPU together. The QPU is released as soon as the
    quantum phase ends, while the classical part continues; the journal carries the state across.
    """

    summary = "a chain of heterogeneous allocations; the QPU is given back as its part ends"
    rank = 30

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        super().__init__(assignment, options)
        self._block: Future[Lease] | None = None

    async def open(self) -> None:
        """Request the first block: nodes without the QPU, until the first quantum phase."""
        await self.take_other_kinds()
        self.pool.join(await self.request(self.pool.most))

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on the block's nodes once it is granted."""
        block = self._block
        if block is not None:
            await self.site.world.settled([block])
            block.result()
        for pool in self.pools.values():
            pool.refill(pool.most)
        return await self.run_tasks(phase, key)

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Start the next block; take only a lease if other phases use or wait for a block."""
        if self.busy or self._block is not None:
            async with self.leased() as lease:
                return await self.solve(lease, phase, key)
        lease = await self._next_block()
        try:
            return await self.solve(lease, phase, key)
        finally:
            lease.release()

    async def wait_for_qpu(self) -> float:
        """Expected wait; a new block also waits for its nodes."""
        nodes = 0.0 if self.busy else self.forecast.lead(self.pool.most)
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
        """Release the previous block and wait for the next one."""
        for pool in self.pools.values():
            await pool.release_all()
        await self.take_other_kinds()
        block = await self.request(self.pool.most, co_allocate=self.site.qpu)
        lease: Lease = block.take_co_allocated()
        self.pool.join(block)
        return lease
