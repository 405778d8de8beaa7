"""elastic: a node for each task while it runs, back just as the quantum phase ends.

The nodes of the phase after a quantum phase are asked for ahead of its expected end, by the time
that grants take. Over each gap it decides, node by node, to keep or to give back: whichever is
expected to cost less, idle nodes or lost time, as the user weighs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtide.forecasts.phases import Shape
from qtide.programs.phase import Classical, Phase, Quantum
from qtide.programs.replay import asked
from qtide.strategies.elastic_pool import ElasticOptions, ElasticPool, Upcoming
from qtide.strategies.strategy import Strategy


class Elastic(Strategy):
    """Tells its pool what is needed now, what comes next, and when."""

    summary = "a node for each task while it runs, back just as the quantum phase ends"
    rank = 40
    Options = ElasticOptions
    options: ElasticOptions
    pool: ElasticPool

    def new_pool(self) -> ElasticPool:
        """A pool that requests nodes early and decides about each idle one."""
        site = self.site
        resources = (site.world, site.cluster, self.job, self.nodes, self.forecast)
        return ElasticPool(self.options, *resources)

    async def open(self) -> None:
        """Nothing is held before a task needs it."""

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """A node for each task."""
        with self.forecast.phases.during(shape(phase), key):
            work = self.pool.run(phase, key)
            self._look_ahead(phase, lambda: self.site.world.now() + self.forecast.tasks.remaining())
            self.pool.ensure(self.pool.singles)
            return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """A lease for this phase alone; meanwhile, nodes go and come back."""
        with self.forecast.phases.during(shape(phase), key):
            async with self.leased() as lease:
                usual = self.site.qpu.profile.seconds(phase.payload, phase.shots)
                end = self.site.world.now() + usual
                # once the payload is handed in, the lease knows its place in the queue
                self._look_ahead(phase, lambda: lease.outlook.end if lease.outlook else end)
                return await self.solve(lease, phase, key)

    def _look_ahead(self, phase: Phase, end: Callable[[], float]) -> None:
        """Prepare for the classical phase that comes after this one; if unknown, suppose one."""
        need = self.forecast.phases.next_need(shape(phase))
        if need is not None:
            self.pool.expect(Upcoming(lambda: end() + need.after, need.nodes, need.seconds))
            return
        after = self.site.qpu.profile.seconds(None) if isinstance(phase, Classical) else 0.0
        self.pool.expect(Upcoming(lambda: end() + after, self.nodes, 0.0, known=False))


def shape(phase: Phase) -> Shape:
    """A phase as the forecast knows it."""
    if isinstance(phase, Quantum):
        return Shape(asked(phase), 0, quantum=True)
    return Shape(asked(phase), sum(task.nodes == 1 for task in phase.tasks))
