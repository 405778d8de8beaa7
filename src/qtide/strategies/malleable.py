"""malleable: one node always; more for a classical phase, given back for a quantum phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from qtide.options import Option
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Strategy


@dataclass(frozen=True)
class MalleableOptions:
    """How patient it is."""

    expand_timeout: Annotated[
        float, Option("How long to wait for more nodes, then go on with fewer.", metavar="SECONDS")
    ] = 5.0


class Malleable(Strategy):
    """Grows by companion allocations beside its one own node, and shrinks by ending them."""

    summary = "one node always, more for a classical phase"
    Options = MalleableOptions

    async def open(self) -> None:
        """Take the node and the lease that are held from start to end."""
        await self.take(1)

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Grow, then spread the tasks over the nodes there are."""
        work = self.pool.run(phase, key)
        await self._grow()
        return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Shrink, unless a classical phase runs beside."""
        if not self.pool.load:
            await self.pool.shrink(keep=1)
        return await self.solve_on_own_lease(phase, key)

    async def _grow(self) -> None:
        """Wait for more nodes up to the timeout, then go on with what came."""
        more = min(self.pool.load, self.terms.nodes) - self.pool.size
        if more > 0:
            patience = self.terms.expand_timeout
            self.pool.join(await self.request(more, least=0, patience=patience))
