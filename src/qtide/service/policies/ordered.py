"""Policies whose order never changes while tasks wait: each task has a fixed place on arrival.

Ageing needs no clock: two waiting tasks grow older at the same pace. A task that comes late enough
ranks behind any other, so none starves.
"""

from __future__ import annotations

from collections.abc import Callable

from qtide.service.policies.policy import Ahead, Shares
from qtide.service.policies.ranked import Ranked
from qtide.service.task import ServiceTask

Place = tuple[float, float, float, str]

AGEING = 60.0
"""Seconds of waiting that outweigh one step of priority."""
PATIENCE = 10.0
"""Seconds of waiting that outweigh one second of expected occupation."""
OVERTAKEN = 86_400.0
"""Seconds after which a task is no longer overtaken by later ones of older jobs."""


def arrival(task: ServiceTask) -> Place:
    """First come, first served."""
    return task.submitted, 0.0, task.submitted, task.id


def urgency(task: ServiceTask) -> Place:
    """The higher its priority, the earlier it counts as submitted."""
    return task.submitted - AGEING * task.priority, 0.0, task.submitted, task.id


def expected(task: ServiceTask) -> Place:
    """The longer it should take, the later it counts as submitted."""
    return task.submitted + PATIENCE * task.seconds, 0.0, task.submitted, task.id


def by_job(shares: Shares) -> Callable[[ServiceTask], Place]:
    """The oldest job is first, so that jobs end one after the other, not all of them late."""

    def place(task: ServiceTask) -> Place:
        rank = max(shares.began(task), task.submitted - OVERTAKEN)
        return rank, task.caller.job or 0.0, task.submitted, task.id

    return place


class Ordered:
    """Tasks in a fixed order."""

    def __init__(self, place: Callable[[ServiceTask], Place]) -> None:
        self._place = place
        self._order = Ranked()
        self._promised = Ranked()
        self._waiting: dict[str, tuple[ServiceTask, Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, task: ServiceTask, now: float) -> None:
        """Let a task wait."""
        place = self._place(task)
        self._waiting[task.id] = task, place
        self._order.add(place, task.seconds)
        if task.latest is not None:
            self._promised.add(place, task.seconds)

    def remove(self, task: ServiceTask) -> None:
        """Let it wait no longer."""
        _, place = self._waiting.pop(task.id)
        self._order.remove(place)
        if task.latest is not None:
            self._promised.remove(place)

    def first(self) -> ServiceTask:
        """The first in order."""
        return self._waiting[self._order.first[-1]][0]

    def seconds_before(self, task: ServiceTask) -> float:
        """The seconds of what is before it in order."""
        return self._order.before(self._waiting[task.id][1]).seconds

    def ahead(self, task: ServiceTask) -> Ahead:
        """What is before it in order."""
        _, place = self._waiting[task.id]
        tasks, seconds = self._order.before(place)
        return Ahead(tasks, seconds, self._promised.before(place).seconds)

    def serve(self, task: ServiceTask, now: float) -> None:
        """Nobody else's place depends on it."""

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """Nobody's place depends on it."""


def fifo(_: Shares) -> Ordered:
    """The oldest task is first."""
    return Ordered(arrival)


def priority(_: Shares) -> Ordered:
    """The highest priority is first; waiting outweighs it in time."""
    return Ordered(urgency)


def shortest(_: Shares) -> Ordered:
    """The shortest expected is first; waiting outweighs it in time."""
    return Ordered(expected)


def jobs(shares: Shares) -> Ordered:
    """The job that has been going longest is first; nobody is overtaken for longer than a day."""
    return Ordered(by_job(shares))
