"""static: all nodes and the QPU from start to end. The baseline."""

from __future__ import annotations

from typing import Any

from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Strategy


class Static(Strategy):
    """Holds the most that any phase needs, used or not."""

    summary = "all nodes and the QPU from start to end"
    rank = 0

    async def open(self) -> None:
        """Acquire everything at once."""
        await self.take_other_kinds()
        await self.take(self.pool.most)

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on the nodes held; ask again for those that were lost and not replaced."""
        for pool in self.pools.values():
            pool.refill(pool.most)
        return await self.run_tasks(phase, key)

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload while the nodes idle."""
        return await self.solve_on_own_lease(phase, key)
