"""The forecast of one job: everything that a strategy may want to know about what is to come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any

from qtide.forecasts.durations import Durations
from qtide.forecasts.phases import Phases
from qtide.forecasts.recent import Recent

Known = Mapping[str, Any]
"""What a job has learnt of its program, as JSON."""

STARTS = 4
"""How many past starts and releases of nodes count for the next."""


class Forecast:
    """Tasks, phases and nodes of a job; how long its requests wait is for the cluster to say."""

    def __init__(
        self,
        now: Callable[[], float],
        expected_wait: Callable[[int], float],
        waits_seen: Callable[[], list[float]] = list,
        *,
        warm: bool = False,
    ) -> None:
        self.tasks = Durations(now)
        self.phases = Phases(now)
        self._starts = Recent(STARTS)
        self._releases = Recent(STARTS)
        self._expected_wait = expected_wait
        self._waits_seen = waits_seen
        self._warm = warm
        """Whether a node that is given back and asked for again need not start anew."""

    def node_started(self, seconds: float) -> None:
        """A node that was granted could work after so long."""
        if not self._warm:
            self._starts.add(seconds)

    def start(self) -> float:
        """How long a node takes until it can work, once it is granted."""
        return self._starts.mean()

    def node_released(self, seconds: float) -> None:
        """A node that was given back was held for so much longer."""
        self._releases.add(seconds)

    def turnaround(self) -> float:
        """How long a node that is given back and asked for again is held without work."""
        return self.start() + self._releases.mean()

    def leads(self) -> list[float]:
        """How long it has taken lately from asking for a node until it could work."""
        starts, waits = self._starts.values(), self._waits_seen()
        if any(starts):
            waits = [wait + start for wait, start in zip(waits, cycle(starts))]
        return waits or [self.lead(1)]

    def lead(self, nodes: int) -> float:
        """How long it takes from asking for nodes until they can work."""
        return self._expected_wait(nodes) + self.start()

    def as_json(self) -> Known:
        """What holds for the next run of the program as well."""
        return {"tasks": self.tasks.as_json(), "phases": self.phases.as_json()}

    def recall(self, known: Known) -> None:
        """Begin with what an earlier run has learnt."""
        self.tasks.recall(known["tasks"])
        self.phases.recall(known["phases"])
