"""elastic: a node for each task while it runs, back just as the quantum phase ends.

The nodes of the phase after a quantum phase are asked for ahead of its expected end, by the time
that grants take. Over each gap it decides, node by node, to keep or to give back: whichever is
expected to cost less, idle nodes or lost time, as the user weighs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from qtide.errors import UsageError
from qtide.options import Option
from qtide.programs.phase import Classical, Phase, Quantum
from qtide.strategies.elastic_pool import ElasticPool, Next
from qtide.strategies.forecast import Forecast
from qtide.strategies.strategy import Site, Strategy, Terms


def favour(word: str) -> float:
    """`time` and `nodes` are the ends of a scale from 1 to 0."""
    try:
        value = {"time": 1.0, "nodes": 0.0}.get(word)
        value = float(word) if value is None else value
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--favour is time, nodes, or a number from 0 to 1, not {word!r}")
    return value


@dataclass(frozen=True)
class ElasticOptions:
    """The trade between time and nodes."""

    favour: Annotated[
        float, Option("What to save: time, nodes, or a number from 1 to 0.", favour)
    ] = 0.5
    idle_share: Annotated[
        float, Option("How long a node may idle that came too early, as a share of its use.")
    ] = 0.1


class Elastic(Strategy):
    """Tells its pool what is needed now, what comes next, and when."""

    summary = "a node for each task, back as the quantum phase ends"
    Options = ElasticOptions

    pool: ElasticPool

    def __init__(self, site: Site, terms: Terms) -> None:
        super().__init__(site, terms)
        self._forecast = Forecast(site.world)

    def new_pool(self) -> ElasticPool:
        """A pool that brings nodes early and decides about each spare one."""
        return ElasticPool(self.site, self.terms)

    async def open(self) -> None:
        """Nothing is held before a task needs it."""

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """A node for each task."""
        with self._forecast.during(phase, key):
            work = self.pool.run(phase, key)
            self._look_ahead(phase, lambda: self.site.world.now() + self.pool.remaining)
            self.pool.bring(self.pool.singles)
            return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """A lease for this phase alone; meanwhile, nodes go and come back."""
        with self._forecast.during(phase, key):
            async with self.leased() as lease:
                usual = self.site.qpu.profile.seconds(phase.payload, phase.shots)
                end = self.site.world.now() + usual
                # once the payload is handed in, the lease knows its place in the queue
                self._look_ahead(phase, lambda: lease.outlook.end if lease.outlook else end)
                return await self.solve(lease, phase, key)

    def _look_ahead(self, phase: Phase, end: Callable[[], float]) -> None:
        """Prepare for the classical phase that comes after this one; if unknown, suppose one."""
        need = self._forecast.next_need(phase)
        if need is not None:
            self.pool.expect(Next(lambda: end() + need.after, need.nodes, need.seconds))
            return
        after = self.site.qpu.profile.seconds(None) if isinstance(phase, Classical) else 0.0
        self.pool.expect(Next(lambda: end() + after, self.terms.nodes, 0.0, known=False))
