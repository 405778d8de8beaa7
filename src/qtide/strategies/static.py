"""static: all nodes and the QPU from start to end. The baseline."""

from __future__ import annotations

from typing import Any

from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Strategy


class Static(Strategy):
    """Holds the most that any phase needs, whether it is used or not."""

    async def open(self) -> None:
        """Take everything, the nodes first: a QPU waits for nobody."""
        self.crew.join(await self.request(self.terms.nodes))
        self.lease = await self.site.qpu.lease(self.site.job)

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on the nodes that are held anyway."""
        return await self.crew.run(phase, key)

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload while the nodes idle."""
        assert self.lease is not None
        return await self.solve(self.lease, phase, key)
