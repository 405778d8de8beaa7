"""elastic: nodes while they pay for themselves, back just as the quantum phase ends.

The nodes of the phase after a quantum phase are asked for ahead of its expected end, by the time
that grants take. Over each gap it decides, node by node, to keep or to give back: whichever is
expected to cost less, idle nodes or lost time, as the user weighs them (`elastic_pool.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from qtide.backends.leases.qpu import Lease
from qtide.core.forecasts import Need, PhaseShape
from qtide.programs.phase import Classical, Phase, Quantum
from qtide.strategies.elastic_pool import ElasticOptions, ElasticPool, Stage
from qtide.strategies.strategy import Assignment, Strategy, shape

SUPPOSED = 0.01
"""Seconds that an unknown gap lasts at least: nodes that are had again for free are given back."""


class Elastic(Strategy):
    """Tells its pool what is needed now, what comes next, and when."""

    summary = "nodes while they pay for themselves, back just as the quantum phase ends"
    rank = 40
    Options = ElasticOptions
    options: ElasticOptions
    pool: ElasticPool

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        super().__init__(assignment, options)
        self._phases = 0

    def new_pool(self) -> ElasticPool:
        """A pool that requests nodes early and decides about each idle one."""
        site = self.site
        resources = (site.world, site.cluster, self.job, self.nodes, self.forecast)
        return ElasticPool(self.options, *resources)

    async def open(self) -> None:
        """Nothing is held before a task needs it."""
        self.site.demand.watch(self.pool, self.pool.think_again)

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """As many nodes as pay for the tasks."""
        with self._during():
            work = self.pool.run(phase, key)
            now, remaining = self.site.world.now, self.forecast.tasks.remaining
            self._look_ahead(phase, key, lambda: now() + remaining())
            self.pool.work_on(self._durations(phase))
            return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """A lease for this phase alone; meanwhile, nodes go and come back."""
        with self._during():
            usual = self.site.qpu.profile.seconds(phase.payload, phase.shots)
            usual = min(usual, inf if phase.limit is None else phase.limit)
            asked = self.site.world.now()
            self._look_ahead(phase, key, lambda: asked + usual)
            async with self.leased() as lease:
                end = self.site.world.now() + usual
                # once the payload is handed in, the lease knows its place in the queue
                self._look_ahead(phase, key, lambda: _end(lease, end))
                return await self.solve(lease, phase, key)

    @contextmanager
    def _during(self) -> Iterator[None]:
        """While a phase is under way, nodes are decided on; when none is, the program speaks."""
        self._phases += 1
        try:
            yield
        finally:
            self._phases -= 1
            if not self._phases:
                self.pool.on_done()

    def _durations(self, phase: Classical) -> list[float | None]:
        return [self.forecast.tasks.known(each) for each in places(shape(phase))]

    def _look_ahead(self, phase: Phase, key: str, end: Callable[[], float]) -> None:
        """Prepare for the classical phases that come after this one; if unknown, suppose one."""
        needs = self.forecast.phases.needs(key) or [self._supposed(phase)]
        estimate = self.forecast.tasks.estimate

        def stages() -> list[Stage]:
            gap = end() - self.site.world.now()
            return [
                Stage(gap + after, lasts, [estimate(each) for each in places(shape)])
                for after, lasts, shape in needs
            ]

        self.pool.expect(stages)

    def _supposed(self, phase: Phase) -> Need:
        """After what was never followed: the widest phase again, and a payload before."""
        quantum = isinstance(phase, Classical) and self.site.has_qpu
        after = self.site.qpu.profile.seconds(None) if quantum else 0.0
        return Need(max(after, SUPPOSED), 0.0, self.forecast.phases.widest())


def _end(lease: Lease, otherwise: float) -> float:
    """When the payload of a lease should be done."""
    outlook = lease.outlook
    return outlook.end if outlook else otherwise


def places(shape: PhaseShape) -> list[tuple[str, int]]:
    """Where the tasks of a classical phase that need one node each stand."""
    return [(shape.label, n) for n in shape.singles]
