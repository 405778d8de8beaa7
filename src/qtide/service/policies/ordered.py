"""Policies whose order never changes while tasks wait: each task has a fixed place on arrival.

Ageing needs no clock: two waiting tasks grow older at the same pace. A task that comes late enough
ranks behind any other, so none starves.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from qtide.service.policies.shares import Shares
from qtide.service.task import Task

Place = tuple[float, float, str]

AGEING = 60.0
"""Seconds of waiting that outweigh one step of priority."""
PATIENCE = 10.0
"""Seconds of waiting that outweigh one second of expected occupation."""


def arrival(task: Task) -> Place:
    """First come, first served."""
    return task.submitted, task.submitted, task.id


def urgency(task: Task) -> Place:
    """The higher its priority, the earlier it counts as submitted."""
    return task.submitted - AGEING * task.priority, task.submitted, task.id


def expected(task: Task) -> Place:
    """The longer it should take, the later it counts as submitted."""
    return task.submitted + PATIENCE * task.seconds, task.submitted, task.id


class Ordered:
    """Tasks in a fixed order."""

    def __init__(self, place: Callable[[Task], Place]) -> None:
        self._place = place
        self._tasks: list[Task] = []

    @property
    def empty(self) -> bool:
        """Whether no task waits."""
        return not self._tasks

    def add(self, task: Task) -> None:
        """Let a task wait."""
        insort(self._tasks, task, key=self._place)

    def remove(self, task: Task) -> None:
        """Let it wait no longer."""
        del self._tasks[bisect_left(self._tasks, self._place(task), key=self._place)]

    def order(self, now: float) -> Iterator[Task]:
        """The tasks in order."""
        yield from self._tasks


def fifo(_: Shares) -> Ordered:
    """The oldest task is first."""
    return Ordered(arrival)


def priority(_: Shares) -> Ordered:
    """The highest priority is first; waiting outweighs it in time."""
    return Ordered(urgency)


def shortest(_: Shares) -> Ordered:
    """The shortest expected is first; waiting outweighs it in time."""
    return Ordered(expected)
