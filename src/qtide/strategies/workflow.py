"""workflow: one allocation per phase, none in between."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

from qtide.core.options import Option
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.node_pool import NodePool
from qtide.strategies.strategy import KindsWork, Strategy

PATIENCE = 5.0
"""Seconds that a phase waits for nodes with which its malleable tasks can grow."""


@dataclass(frozen=True)
class WorkflowOptions:
    """Options of `workflow`."""

    engine: Annotated[
        str | None, Option("A workflow engine that runs the phases in place of qtide: streamflow.")
    ] = None


class Workflow(Strategy):
    """Each phase is a separate step that queues for exactly what it needs."""

    summary = "an allocation for each phase, none between"
    rank = 20
    Options = WorkflowOptions

    @property
    def time_weight(self) -> float:
        """A second counts as much as a node-second: each phase asks for what it holds."""
        return 0.5

    async def open(self) -> None:
        """Hold nothing between phases."""

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks in pools for this phase only, one for each kind of nodes."""
        numbers = self.by_kind(phase)
        pools = {kind: self.new_pool(kind) for kind in numbers}
        works = {kind: pools[kind].run(phase, key, each) for kind, each in numbers.items()}
        steps = {kind: self._step(pools[kind], work) for kind, work in works.items()}
        return await KindsWork(self.site.world, numbers, steps)

    async def _step(self, pool: NodePool, work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
        try:
            needed, most = (min(each, pool.most) for each in (pool.load, pool.unfinished.grown))
            terms = {} if needed == most else {"least": needed, "patience": PATIENCE}
            pool.join(await pool.cluster.request(self.job, most, **terms))
            return await work
        finally:
            work.close()  # it has not begun if no nodes came
            await pool.close()

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload on a lease for this phase only."""
        async with self.leased() as lease:
            return await self.solve(lease, phase, key)
