"""EASY backfilling as a simpy model: the peer of benchmarks/twin.py, by the same rules."""

from __future__ import annotations

from bisect import insort
from collections.abc import Generator
from typing import Any

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
