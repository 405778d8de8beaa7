"""What earlier tasks of a device say about the next ones: how long they take, and when they start.

If a payload does not state its duration, the estimate follows from earlier tasks of similar size.
Without it, tasks would seem to take no time, and the device would get far too many in advance.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from qtide.service.task import Extent, ServiceTask

FIRST = 1.0
"""Seconds assumed per circuit at first: so long that the worker gets one task at a time."""
WEIGHT = 0.2
"""The weight of the last task in the mean."""
ENOUGH = 3
"""Tasks of a size after which to trust its longest time, times `SAFETY`."""
SAFETY = 2.0


@dataclass
class SizeClass:
    """Durations of the tasks of one extent."""

    mean: float
    longest: float
    tasks: int = 1

    def learn(self, seconds: float) -> None:
        """Add the duration of another task."""
        self.mean += WEIGHT * (seconds - self.mean)
        self.longest = max(seconds, self.longest)
        self.tasks += 1


class DurationEstimate:
    """Expected durations by extent; an unknown extent uses the most similar known one."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._known: dict[Extent, SizeClass] = {}

    def seconds(self, extent: Extent, circuits: int, expected: float | None = None) -> float:
        """Expected duration of a task; `expected` is the device's own estimate.

        Tasks of the same extent take precedence, then the device, then tasks of other extents.
        """
        if expected is not None and extent not in self._known:
            return min(expected, self._limit)
        if not self._known:
            return min(FIRST * circuits, self._limit)
        nearest = min(self._known, key=extent.distance)
        power = max(-60, min(60, extent.beyond(nearest)))
        return float(min(self._known[nearest].mean * 2.0**power, self._limit))

    def knows(self, extent: Extent) -> bool:
        """Whether a task of that extent has run."""
        return extent in self._known

    def longest(self, extent: Extent | None) -> float:
        """Worst-case duration, from tasks at least as large in every dimension.

        If there were too few of them, it is the device's limit.
        """
        if extent is None:
            return self._limit
        larger = (
            SAFETY * known.longest
            for each, known in self._known.items()
            if known.tasks >= ENOUGH and each.covers(extent)
        )
        return min(self._limit, min(larger, default=self._limit))

    def adopt(self, other: DurationEstimate) -> None:
        """Take over what another estimate has learnt."""
        self._known |= other._known

    def learn(self, extent: Extent, seconds: float) -> None:
        """Learn from the duration of a task."""
        if extent in self._known:
            self._known[extent].learn(seconds)
        else:
            self._known[extent] = SizeClass(seconds, seconds)


REMEMBERED = 500
"""Tasks from which to learn how far real starts are from expected ones."""
ENOUGH_STARTS = 20
"""Starts from which on to trust what was learnt."""
GRAIN = 0.05
"""Seconds added to waits before their ratio is taken, so that short ones do not dominate."""
ALIKE = 100
"""Starts to look at: those of the most similar expected wait, as long waits err in another way."""
TAIL = 0.04
"""The share of their ratios on each side of the interval; a load that changes needs the rest."""
UNKNOWN = (0.2, 1.0, 5.0)
"""The ratios of real to expected waits that are assumed before enough starts were seen."""


class StartLearner:
    """How long tasks really wait, compared with what was expected when they were accepted.

    Other users' later tasks and durations that were guessed wrongly make up the difference. The
    interval that is told holds a little more than nine of ten of the recent starts like it, so it
    should hold nine of ten of the next ones.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)
        """The last expected waits, each with the real one's ratio to it."""
        self._expected: dict[str, float] = {}
        """The expected waits of tasks that have not started, by id."""

    def expect(self, task: ServiceTask, start: float) -> None:
        """Note the start that is expected of a task that has just been accepted."""
        self._expected[task.id] = max(0.0, start - task.submitted)

    def started(self, task: ServiceTask) -> None:
        """Compare the real start of a task with the expected one."""
        expected = self._expected.pop(task.id, None)
        if expected is not None and task.started is not None:
            real = max(0.0, task.started - task.submitted)
            self._seen.append((expected, (real + GRAIN) / (expected + GRAIN)))

    def forget(self, task: ServiceTask) -> None:
        """Drop a task that ended without a start."""
        self._expected.pop(task.id, None)

    @property
    def starts(self) -> int:
        """How many starts the interval is based on."""
        return len(self._seen)

    def likely(self, wait: float) -> tuple[float, float, float]:
        """The shortest, the usual and the longest wait to expect, in nine of ten cases."""
        ratios, here = UNKNOWN, wait + GRAIN
        if len(self._seen) >= ENOUGH_STARTS:
            near = sorted(self._seen, key=lambda one: abs(math.log((one[0] + GRAIN) / here)))
            known = sorted(ratio for _, ratio in near[:ALIKE])
            last = len(known) - 1
            places = (int(TAIL * last), last // 2, math.ceil((1 - TAIL) * last))
            ratios = known[places[0]], known[places[1]], known[places[2]]
        low, usual, high = (max(0.0, each * here - GRAIN) for each in ratios)
        return low, usual, high
