"""malleable: always one node; more for a classical phase, released for a quantum phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from qtide.core.options import Option, number_from
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.node_pool import NodePool
from qtide.strategies.strategy import Strategy


@dataclass(frozen=True)
class MalleableOptions:
    """Options of `malleable`."""

    expand_timeout: Annotated[
        float, Option("Seconds to wait for more nodes, then go on with fewer.", number_from(0))
    ] = 5.0


class Malleable(Strategy):
    """Grows by requesting allocations beside its one fixed node, and shrinks by releasing them."""

    summary = "one node always; more for a classical phase, given back for a quantum phase"
    rank = 10
    Options = MalleableOptions
    options: MalleableOptions

    async def open(self) -> None:
        """Acquire the node and the lease held from start to end."""
        await self.take(1)

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Grow, then run the tasks on the nodes held."""
        work = self.run_tasks(phase, key)
        try:
            await self.site.world.all_of([self._grow(pool) for pool in self.pools.values()])
        except BaseException:
            work.close()  # it has not begun
            raise
        return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Shrink unless a classical phase is running, then run the payload."""
        if not self.busy:
            for pool in self.pools.values():
                await pool.shrink(keep=1 if pool is self.pool else 0)
        return await self.solve_on_own_lease(phase, key)

    async def _grow(self, pool: NodePool) -> None:
        """Wait for more nodes up to the timeout, then continue with what arrived."""
        more = min(pool.unfinished.grown, pool.most) - pool.size
        if more > 0:
            terms = {"least": 0, "patience": self.options.expand_timeout}
            pool.join(await pool.cluster.request(self.job, more, **terms))
