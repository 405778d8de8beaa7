"""split: a chain of heterogeneous allocations, nodes and QPU together, one quantum block each."""

from __future__ import annotations

from typing import Any

from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Strategy


class Split(Strategy):
    """A block begins with a quantum phase and goes on with the classical phases after it.

    Each block queues for its nodes and the QPU at the same time. The QPU is given back the moment
    its part is over, while the classical part goes on; the journal carries the state across.
    """

    async def open(self) -> None:
        """What comes before the first quantum phase is a block of nodes alone."""
        self._blocked = False
        self.crew.join(await self.request(self.terms.nodes))

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on the nodes of the block."""
        return await self.crew.run(phase, key)

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """The next block; beside phases that use the present one, a lease alone."""
        if self.crew.load or self._blocked:
            async with self.leased() as lease:
                return await self.solve(lease, phase, key)
        self._blocked = True
        try:
            return await self._next_block(phase, key)
        finally:
            self._blocked = False

    async def _next_block(self, phase: Quantum, key: str) -> Any:
        await self.crew.dismiss()
        block = await self.request(self.terms.nodes, beside=self.site.qpu)
        self.crew.join(block)
        try:
            return await self.solve(block.beside, phase, key)
        finally:
            block.beside.release()
