"""workflow: one allocation per phase, none in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from qtide.core.options import Option
from qtide.programs.phase import Classical, Quantum
from qtide.strategies.strategy import Strategy


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

    async def open(self) -> None:
        """Hold nothing between phases."""

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks in a pool for this phase only."""
        pool = self.new_pool()
        work = pool.run(phase, key)
        try:
            pool.join(await self.request(min(pool.load, self.nodes)))
            return await work
        finally:
            work.close()  # it has not begun if no nodes came
            await pool.close()

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload on a lease for this phase only."""
        async with self.leased() as lease:
            return await self.solve(lease, phase, key)
