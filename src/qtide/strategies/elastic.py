"""elastic: holds nodes while they pay for themselves; they return as the quantum phase ends.

It requests the nodes for the phase after a quantum phase before the expected end, early enough
for the cluster to grant them. Over each gap it decides, node by node, whether to keep or release:
whichever should cost less, idle nodes or lost time, as the user weighs them (`trade.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Annotated, Any

from qtide.backends.leases.qpu import Lease
from qtide.core.errors import UsageError
from qtide.core.forecasts import Need, PhaseShape, Place
from qtide.core.options import Option, number_from
from qtide.programs.phase import Classical, Phase, Quantum
from qtide.strategies.elastic_pool import ElasticPool
from qtide.strategies.strategy import Assignment, Strategy
from qtide.strategies.trade import Stage

SUPPOSED = 0.01
"""Minimum seconds of an assumed gap, so that nodes that are free to get back are released."""


WEIGHTS = {"time": 1.0, "nodes": 0.0}
"""Weight of a second of the job's time for each value of `--favour`."""


def favour(word: str) -> str:
    """Parse `--favour`: time or nodes. Point to `--time-weight` if given a number."""
    if word in WEIGHTS:
        return word
    try:
        float(word)
    except ValueError:
        raise UsageError(
            f"--favour is time or nodes, not {word!r}; --time-weight takes a number from 0 to 1"
        ) from None
    raise UsageError(f"--favour is time or nodes; give the number as --time-weight {word}")


def time_weight(word: str) -> float:
    """Parse a number from 0 to 1."""
    value = number_from(0)(word)
    if value > 1:
        raise ValueError("it should be a number from 0 to 1")
    return value


@dataclass(frozen=True)
class ElasticOptions:
    """Options of `elastic`."""

    favour: Annotated[str | None, Option("What to save: time or nodes.", favour, "time|nodes")] = (
        None
    )
    time_weight: Annotated[
        float,
        Option("Weight of time against nodes, 0 to 1.", time_weight),
    ] = 0.5
    idle_share: Annotated[
        float,
        Option(
            "How long a node that came early may idle, as a share of its next use.", number_from(0)
        ),
    ] = 0.1

    @property
    def weight(self) -> float:
        """Weight of a second of the job's time; a node-second weighs one minus this."""
        return self.time_weight if self.favour is None else WEIGHTS[self.favour]


class Elastic(Strategy):
    """Tells its pool which nodes are needed now, what comes next, and when."""

    summary = "nodes while they pay for themselves, back just as the quantum phase ends"
    rank = 40
    Options = ElasticOptions
    options: ElasticOptions
    pool: ElasticPool
    pools: dict[str, ElasticPool]  # type: ignore[assignment]  # those of `new_pool`

    def __init__(self, assignment: Assignment, options: Any = None) -> None:
        super().__init__(assignment, options)
        self._phases = 0

    def new_pool(self, kind: str) -> ElasticPool:
        """Create a pool that requests nodes early and decides about each idle one."""
        options, charge = self.options, self.charge(kind)
        return ElasticPool(options.weight, options.idle_share, charge, *self.resources(kind))

    @property
    def time_weight(self) -> float:
        """As the user weighs time against nodes."""
        return self.options.weight

    async def open(self) -> None:
        """Hold nothing yet."""

    async def classical(self, phase: Classical, key: str) -> list[Any]:
        """Run the tasks on as many nodes as pay for themselves."""
        with self._during():
            if any(task.most is not None and not task.malleable for task in phase.tasks):
                self._trim(phase)
            work = self.run_tasks(phase, key)
            now, remaining = self.site.world.now, self.forecast.tasks.remaining
            self._look_ahead(phase, key, lambda: now() + remaining())
            shape = self.shape(phase)
            for kind, numbers in self.by_kind(phase).items():
                bundles = self._bundles(shape, kind, self.forecast.tasks.known)
                wide = [phase.tasks[n].nodes for n in numbers if phase.tasks[n].nodes > 1]
                self.pools[kind].work_on(bundles, wide)
            return await work

    async def quantum(self, phase: Quantum, key: str) -> Any:
        """Run the payload on a lease for this phase; nodes may be released and return meanwhile."""
        with self._during():
            usual = self.site.qpu.profile.seconds(phase.payload, phase.shots)
            usual = min(usual, inf if phase.limit is None else phase.limit)
            asked = self.site.world.now()
            self._look_ahead(phase, key, lambda: asked + usual)
            async with self.leased() as lease:
                end = self.site.world.now() + usual
                # once the payload is submitted, the lease knows its place in the queue
                self._look_ahead(phase, key, lambda: _end(lease, end))
                return await self.solve(lease, phase, key)

    @contextmanager
    def _during(self) -> Iterator[None]:
        """Count running phases; after the last, the pool waits for the program's next phase."""
        self._phases += 1
        try:
            yield
        finally:
            self._phases -= 1
            if not self._phases:
                for pool in self.pools.values():
                    pool.on_done()

    def _trim(self, phase: Classical) -> None:
        """Give back nodes that an earlier size of a task needed, if they are not worth keeping."""
        for kind, numbers in self.by_kind(phase).items():
            nodes = sum(phase.tasks[n].nodes for n in numbers)
            seconds = max(self.forecast.tasks.last((phase.label, n)) for n in numbers)
            self.pools[kind].trim(nodes, seconds)

    def _bundles(
        self, shape: PhaseShape, kind: str, seconds: Callable[[Place], float | None]
    ) -> list[float | None]:
        """Durations of a phase's tasks on nodes of a kind; those that share a node count once."""
        if not shape.kinds and not shape.shares and len(self.pools) == 1:  # whole nodes, all alike
            return [seconds((shape.label, n)) for n in shape.singles]
        kinds = shape.kinds or (self.pool.kind.name,) * len(shape.singles)
        mine = [n for n, each in enumerate(kinds) if each == kind]
        shares = [shape.shares[n] for n in mine] if shape.shares else []
        return bundled([seconds((shape.label, shape.singles[n])) for n in mine], shares)

    def _look_ahead(self, phase: Phase, key: str, end: Callable[[], float]) -> None:
        """Tell the pool which classical phases follow this one; if unknown, assume one."""
        needs = self.forecast.phases.needs(key) or [self._supposed(phase)]
        now = self.site.world.now
        for kind, pool in self.pools.items():
            found = [
                each
                for each in needs
                if len(self.pools) == 1
                or kind in each.shape.together
                or self._bundles(each.shape, kind, lambda _: None)
            ]
            pool.expect(PhasesAhead(now, end, found, partial(self._estimates, kind)))

    def _estimates(self, kind: str, shape: PhaseShape) -> tuple[list[float | None], int]:
        estimates = self._bundles(shape, kind, self.forecast.tasks.estimate)
        return estimates, shape.together.count(kind)

    def _supposed(self, phase: Phase) -> Need:
        """Assume the widest known phase comes next, after a payload if this phase is classical."""
        quantum = isinstance(phase, Classical) and self.site.has_qpu
        after = self.site.qpu.profile.seconds(None) if quantum else 0.0
        return Need(max(after, SUPPOSED), 0.0, self.forecast.phases.widest())


@dataclass(frozen=True)
class PhasesAhead:
    """The classical phases that should follow the current one, on nodes of one kind."""

    now: Callable[[], float]
    end: Callable[[], float]
    """Expected end of the current phase."""
    needs: Sequence[Need]
    tasks: Callable[[PhaseShape], tuple[list[float | None], int]]
    """Expected durations of a phase's one-node tasks, and the number of nodes of all others."""

    def gap(self) -> float:
        """Seconds until the first of them; infinite if there is none."""
        return self.end() - self.now() + self.needs[0].after if self.needs else inf

    def stages(self) -> list[Stage]:
        """All of them, in order."""
        gap = self.end() - self.now()
        return [Stage(gap + after, lasts, *self.tasks(shape)) for after, lasts, shape in self.needs]


def _end(lease: Lease, otherwise: float) -> float:
    """Expected end of a lease's payload."""
    outlook = lease.outlook
    return outlook.end if outlook else otherwise


def bundled(seconds: list[float | None], shares: Sequence[float]) -> list[float | None]:
    """Durations of a phase's tasks; those that fill a node together count as its longest one.

    Tasks of similar durations share a node; one that never ran may take longest.
    """
    if not shares:
        return seconds
    bundles: list[float | None] = []
    left = 0.0
    pairs = zip(seconds, shares, strict=True)
    for each, share in sorted(pairs, key=lambda pair: -inf if pair[0] is None else -pair[0]):
        if share > left + 1e-9:
            bundles.append(each)
            left = 1.0
        left -= share
    return bundles
