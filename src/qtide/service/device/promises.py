"""Promises: tasks that have to start by a moment, and what else may run without making one late.

They are in the order of their moments, each with the time it needs at worst. All times are open
time (without planned calibrations), so one comparison says whether all of them can start in time.
Only a share of the time ahead is promised; and whoever has to give way to a promise gets the place
behind it, so that no stream of promises starves anybody.
"""

from __future__ import annotations

import math
from collections import defaultdict

from qtide.service.device.calendar import Calendar
from qtide.service.policies.ranked import Key, Ranked
from qtide.service.task import Task

AT_ONCE = 1.0
"""Seconds that may be promised in addition to the share of the time ahead."""
OF_ONE_USER = 0.5
"""The part of what may be promised that one user can have."""


class Promises:
    """What was promised and has not been handed over."""

    def __init__(self, share: float, calendar: Calendar) -> None:
        self._share = share
        self._calendar = calendar
        self._order = Ranked()
        self._keys: dict[str, tuple[Key, float]] = {}
        self._ready: dict[str, Task] = {}
        self._of_user: defaultdict[str, float] = defaultdict(float)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def possible(self, task: Task, need: float, free: float, soonest: float) -> bool:
        """Whether a task can be promised its start, and all that were promised theirs keep it.

        The device is free from `free` on, and the task cannot start before `soonest`.
        """
        key = self._key(task)
        last: float = key[0]
        before = self._order.before(key).seconds
        room = AT_ONCE + self._share * (last - free)
        mine = self._of_user.get(task.caller.user, 0.0)
        return (
            self._share > 0.0
            and max(free + before, soonest) <= last
            and before <= room
            and (not mine or mine + need <= OF_ONE_USER * room)
            and self._order.slack(1.0, key) - need >= free
            and self._order.slack(self._share, key) - need >= self._share * free - AT_ONCE
        )

    def make(self, task: Task, need: float) -> None:
        """Promise a task its start: it counts from now on, but is chosen only once it is ready."""
        self._enter(task, self._key(task), need)
        self._of_user[task.caller.user] += need

    def has(self, task: Task) -> bool:
        """Whether a task counts as promised."""
        return task.id in self._keys

    def ready(self, task: Task) -> None:
        """A promised task waits now."""
        if task.id in self._keys:
            self._ready[task.id] = task

    def end(self, task: Task) -> None:
        """A task waits no longer."""
        key, need = self._keys.pop(task.id, (None, 0.0))
        if key is None:
            return
        self._order.remove(key)
        self._ready.pop(task.id, None)
        if task.latest is not None:
            self._of_user[task.caller.user] -= need
            if self._of_user[task.caller.user] < 1e-9:
                del self._of_user[task.caller.user]

    def allow(self, task: Task, until: float) -> bool:
        """Whether a task may run if it occupies the device until then."""
        if task.id not in self._keys:
            return self._order.slack(1.0) >= until
        key, need = self._keys[task.id]
        self._order.remove(key)
        try:
            return self._order.slack(1.0) >= until
        finally:
            self._order.add(key, need)

    def step_back(self, task: Task, need: float, until: float) -> None:
        """Let a task give way to those that it would make late, and to no later promise."""
        if task.id in self._keys:
            return
        last = self._order.last_below(until)
        assert last is not None
        self._enter(task, (math.nextafter(last[0], math.inf), task.id), need)
        self._ready[task.id] = task

    def most_urgent(self) -> tuple[Task | None, bool]:
        """The first of those that are ready, and whether none is before it that is not."""
        for before, (_, each) in enumerate(self._order):
            if each in self._ready:
                return self._ready[each], before == 0
        return None, False

    def due(self, by: float) -> float:
        """The seconds of what has to start by an open time."""
        return self._order.before((by,)).seconds if self._keys else 0.0

    def _enter(self, task: Task, key: Key, need: float) -> None:
        self._order.add(key, need)
        self._keys[task.id] = key, need

    def _key(self, task: Task) -> Key:
        assert task.latest is not None
        return self._calendar.last_start(task.latest), task.id
