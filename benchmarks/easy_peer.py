"""EASY backfilling by the same rules, as a simpy model and as plain loops: peers of twin.py."""

from __future__ import annotations

from bisect import insort
from collections.abc import Generator
from typing import Any

import numba
import numpy as np
import simpy

from qtide.backends.models.trace import Trace

AFTER_ALL: Any = 2
"""The priority of the scheduling pass: after everything else of the moment."""


class Easy:
    """A cluster with one queue; every job is a process."""

    def __init__(self, trace: Trace, nodes: int) -> None:
        self.world = simpy.Environment()
        self.free = nodes
        self.starts = [0.0] * len(trace)
        self._nodes = trace.nodes.tolist()
        self._limit = trace.limit.tolist()
        self._queue: dict[int, simpy.Event] = {}
        self._running: list[tuple[float, int]] = []
        self._due = False
        columns = (trace.submit.tolist(), trace.run.tolist())
        for number, (submit, run) in enumerate(zip(*columns, strict=True)):
            self.world.process(self._job(number, submit, run))

    def run(self) -> list[float]:
        """When each job started."""
        self.world.run()
        return self.starts

    def _job(self, number: int, submit: float, run: float) -> Generator[Any, Any, None]:
        yield self.world.timeout(submit)
        start = self._queue[number] = self.world.event()
        self._change()
        yield start
        expected = (self.world.now + self._limit[number], number)
        yield self.world.timeout(run)
        self._running.remove(expected)
        self.free += self._nodes[number]
        self._change()

    def _change(self) -> None:
        if not self._due:
            self._due = True
            due = simpy.Event(self.world)
            due._ok, due._value = True, None
            due.callbacks.append(lambda _: self._pass())
            self.world.schedule(due, priority=AFTER_ALL)

    def _pass(self) -> None:
        self._due = False
        blocked, shadow, extra, now = False, 0.0, 0, self.world.now
        for number in list(self._queue):
            if not self.free:
                return
            nodes, fits = self._nodes[number], self._nodes[number] <= self.free
            if blocked and fits:
                in_time = now + self._limit[number] <= shadow
                fits = in_time or nodes <= extra
                extra -= nodes if fits and not in_time else 0
            if fits:
                self._start(number, now)
            elif not blocked:
                blocked = True
                shadow, extra = self._reservation(nodes, now)

    def _start(self, number: int, now: float) -> None:
        self.starts[number] = now
        self.free -= self._nodes[number]
        insort(self._running, (now + self._limit[number], number))
        self._queue.pop(number).succeed()

    def _reservation(self, nodes: int, now: float) -> tuple[float, int]:
        free, shadow = self.free, float("inf")
        for end, number in self._running:
            if end > shadow:
                break
            free += self._nodes[number]
            if shadow == float("inf") and free >= nodes:
                shadow = max(now, end)
        return shadow, free - nodes


def with_numba(trace: Trace, nodes: int) -> Any:
    """When each job started, by plain loops over the columns of the trace, compiled."""
    return _easy(trace.submit, trace.nodes, trace.run, trace.limit, nodes)


@numba.njit(cache=True)
def _easy(  # noqa: C901, PLR0912, PLR0915 - one loop, as one would write it down
    submit: Any, wanted: Any, run: Any, limit: Any, nodes: int
) -> Any:
    jobs, free = len(submit), nodes
    starts, ends = np.zeros(jobs), np.full(nodes, np.inf)
    queue, queued = np.zeros(jobs, np.int64), 0
    running, runs = np.zeros(nodes, np.int64), 0  # by the ends that their limits say
    row, left = 0, jobs
    while left:
        first = 0
        for place in range(1, runs):
            if ends[place] < ends[first]:
                first = place
        now = ends[first] if runs else np.inf
        if row < jobs and submit[row] < now:
            now = submit[row]
        place = 0
        for each in range(runs):
            if ends[each] <= now:
                free += wanted[running[each]]
                left -= 1
            else:
                running[place], ends[place] = running[each], ends[each]
                place += 1
        runs = place
        while row < jobs and submit[row] <= now:
            queue[queued] = row
            queued, row = queued + 1, row + 1
        blocked, shadow, extra, kept = False, 0.0, 0, 0
        for place in range(queued):
            job = queue[place]
            fits = wanted[job] <= free
            if fits and blocked:
                in_time = now + limit[job] <= shadow
                fits = in_time or wanted[job] <= extra
                if fits and not in_time:
                    extra -= wanted[job]
            if fits:
                starts[job] = now
                free -= wanted[job]
                other = runs
                while other:
                    before = running[other - 1]
                    if starts[before] + limit[before] <= now + limit[job]:
                        break
                    running[other], ends[other] = before, ends[other - 1]
                    other -= 1
                running[other], ends[other] = job, now + run[job]
                runs += 1
                continue
            queue[kept] = job
            kept += 1
            if not blocked:
                blocked, shadow, there = True, np.inf, free
                for other in range(runs):
                    expected = starts[running[other]] + limit[running[other]]
                    if expected > shadow:
                        break
                    there += wanted[running[other]]
                    if shadow == np.inf and there >= wanted[job]:
                        shadow = max(now, expected)
                extra = there - wanted[job]
            if not free:
                for other in range(place + 1, queued):
                    queue[kept] = queue[other]
                    kept += 1
                break
        queued = kept
    return starts
