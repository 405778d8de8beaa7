"""The queue of a device: which task is next, and what was promised."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import takewhile

from qtide.core.forecasts import Outlook
from qtide.service.configuration import MaintenanceWindow
from qtide.service.device.calendar import Calendar
from qtide.service.policies.policy import Ahead, Key, Policy, Ranked, ShareOwner, Shares
from qtide.service.task import ServiceTask

SHARE = 0.5
"""The share of future time that may be promised."""


class DeviceQueue:
    """The tasks that wait, ordered by a policy, and those handed over, in order of hand-over."""

    def __init__(
        self,
        policy: Policy,
        shares: Shares,
        calendar: Calendar | None = None,
        share: float = SHARE,
        longest: Callable[[ServiceTask], float] = lambda task: task.left,
        gives_way: Callable[[ServiceTask], float] = lambda _: math.inf,
    ) -> None:
        self.margin = Margin()
        self._policy = policy
        self._shares = shares
        self._calendar = calendar or Calendar(None, 0.0)
        self._longest = longest
        self._gives_way = gives_way
        self._promises = Promises(share, self._calendar)
        self.waiting: dict[str, ServiceTask] = {}
        self._seconds = 0.0
        """Expected seconds of those that wait."""
        self.sociable: dict[str, ServiceTask] = {}
        """Those that wait and may run beside others."""
        self.handed: dict[str, ServiceTask] = {}
        self.began: float | None = None
        """When the first of the handed-over tasks started."""
        self.pausing: float | None = None
        """When the first of the handed-over tasks should have given way, if it was asked to."""

        self.leased_until: float | None = None
        """The latest end of the session that holds the device, if one does."""

    @property
    def promised(self) -> bool:
        """Whether any promised task has yet to be handed over."""
        return bool(self._promises)

    def reserve(self, task: ServiceTask, now: float) -> Outlook | None:
        """Promise a new task its latest start, or return what to expect without a promise.

        From then on, the queue starts and promises nothing that would make the task late.
        """
        outlook = self._if_added(task, now)
        assert task.latest is not None
        free, soonest = self._free(now), now + self.margin.until_ready + self.margin.until_begun
        soonest = self._calendar.open_time(soonest)
        if outlook.start > task.latest or not self._promises.possible(
            task, self._need(task), free, soonest
        ):
            return outlook
        self._promises.make(task, self._need(task))
        return None

    def release(self, task: ServiceTask) -> None:
        """Withdraw the promise to a task that is not added after all."""
        self._promises.end(task)

    def confirm(self, task: ServiceTask, now: float) -> bool:
        """Whether a task that is on disk can start in time, whatever else was promised.

        To write it may have taken longer than was expected when the promise was made.
        """
        if task.latest is None:
            return True
        self._promises.end(task)
        need, soonest = self._need(task), self._calendar.open_time(now + self.margin.until_begun)
        if not self._promises.keep(task, need, self._free(now), soonest):
            return False
        self._promises.make(task, need)
        return True

    def add(self, task: ServiceTask, now: float) -> None:
        """Queue a task; try to keep a promise that was made before a restart."""
        self._policy.add(task, now)
        self.waiting[task.id] = task
        self._seconds += task.left_alone
        if task.width is not None:
            self.sociable[task.id] = task
        if task.latest is not None:
            if not self._promises.has(task):
                self._promises.make(task, self._need(task))
            self._promises.ready(task)

    def withdraw(self, task: ServiceTask) -> None:
        """Remove a task from the queue."""
        del self.waiting[task.id]
        self._seconds = self._seconds - task.left_alone if self.waiting else 0.0
        self.sociable.pop(task.id, None)
        self._policy.remove(task)
        self._promises.end(task)

    def reorder(self, policy: Policy, now: float) -> None:
        """Order the waiting tasks by another policy."""
        for task in self.waiting.values():
            policy.add(task, now)
        self._policy = policy

    def plan(self, windows: Iterable[MaintenanceWindow]) -> int:
        """Set all planned maintenance; return how many promises it breaks."""
        self._calendar.plan(windows)
        self._promises.sort_again()
        latest = (task.latest for task in self.waiting.values())
        return sum(at is not None and self._calendar.maintenance(at) is not None for at in latest)

    def next(self, now: float) -> ServiceTask | None:
        """The next task to start; None if the device should wait for one being accepted."""
        first = self._policy.first()
        if self._promises:
            self._promises.drop_missed(self._calendar.open_time(now + self.margin.until_begun))
        if not self._promises:
            return first
        need = self._need(first)
        until = self._free(now, need)
        if self._promises.allow(first, until):
            return first
        self._promises.step_back(first, need, until)
        urgent, at_once = self._promises.most_urgent()
        if urgent is None or at_once:
            return urgent
        until = self._free(now, self._need(urgent))
        return urgent if self._promises.allow(urgent, until) else None

    def urgent(self, running: ServiceTask, now: float) -> ServiceTask | None:
        """The waiting task for which the running one should give way; None if there is none.

        That is a promised one that would be late otherwise, or one that the policy puts first.
        """
        if self._promises:
            until = self._calendar.open_time(self._busy_until(now))
            if not self._promises.allow(running, until):
                return self._promises.first_ready()
        first = self._policy.first()
        if not self._policy.outranks(first, running):
            return None
        until = self._free(now, self._need(first))
        return first if self._promises.allow(first, until) else None

    def hand_over(self, task: ServiceTask, now: float) -> None:
        """Move a waiting task to the device."""
        self._policy.serve(task, now)
        self.withdraw(task)
        if not self.handed:
            self.began = now
        self.handed[task.id] = task

    def lend(self, task: ServiceTask, now: float) -> None:
        """Move a task of the session that holds the device to it, past the policy."""
        if not self.handed:
            self.began = now
        self.handed[task.id] = task

    def lease(self, session: ServiceTask, now: float) -> None:
        """Give the device to a waiting session."""
        self._policy.serve(session, now)
        self.withdraw(session)
        self.leased_until = now + session.seconds

    def end_lease(self, session: ServiceTask, held: float, idle: float, now: float) -> None:
        """Take the device back from a session, and charge its owner what its tasks did not use."""
        self.leased_until = None
        self._policy.settle(session, held, now)
        self._shares.charge(ShareOwner.of(session.caller), idle, now)

    def begin(self, task: ServiceTask, now: float) -> None:
        """Note that the device has started a task."""
        if next(iter(self.handed), None) == task.id:
            self.began = now

    def take_back(
        self, task: ServiceTask, used: float, now: float, ended: float | None = None
    ) -> None:
        """Remove a task from the device, which it left at `ended`, and charge its owner."""
        if next(iter(self.handed)) == task.id:
            self.pausing = None
        del self.handed[task.id]
        self.began = (now if ended is None else ended) if self.handed else None
        if task.session is None:  # a session's time is charged as a whole
            self._policy.settle(task, used, now)
        self._shares.charge(ShareOwner.of(task.caller), used, now)

    def load(self, now: float) -> float:
        """Seconds for which the handed-over tasks should still keep the device busy."""
        if self.leased_until is not None:
            return max(0.0, self.leased_until - now)
        if self.began is None:
            return 0.0
        tasks = iter(self.handed.values())
        first = max(0.0, self._first_end(next(tasks)) - now)
        return first + sum(task.left for task in tasks)

    def backlog(self, now: float) -> float:
        """Seconds that a task behind all others would wait."""
        open_now = self._calendar.open_time(now + self.load(now))
        return max(0.0, self._calendar.moment(open_now + self._seconds) - now)

    def outlook(self, task: ServiceTask, now: float) -> Outlook:
        """Expected position, start and end of a task, if nothing else is submitted."""
        if task.id in self.handed:
            return self._on_device(task, now)
        tasks, seconds, promised = self._policy.ahead(task)
        open_now = self._calendar.open_time(now + self.load(now))
        overtaking = max(0.0, self._promises.due(open_now + seconds) - promised)
        start = self._calendar.moment(open_now + seconds + overtaking)
        if task.latest is not None:
            start = max(now, min(start, task.latest))
        return Outlook(len(self.handed) + tasks, start, start + task.left)

    def ahead(self, task: ServiceTask) -> Ahead:
        """The work that the policy puts before a waiting task."""
        return self._policy.ahead(task)

    def if_added(self, task: ServiceTask, now: float) -> Outlook:
        """What a new task could expect, behind the promises that would overtake it."""
        found = self._if_added(task, now)
        overtaking = self._promises.due(self._calendar.open_time(found.start))
        start = self._calendar.moment(self._calendar.open_time(found.start) + overtaking)
        return Outlook(found.position, start, start + task.left)

    def _if_added(self, task: ServiceTask, now: float) -> Outlook:
        self._policy.add(task, now)
        try:
            tasks, seconds, _ = self._policy.ahead(task)
        finally:
            self._policy.remove(task)
        load = self.load(now)
        if task.latest is not None:  # a task that runs gives way to it
            load = min(load, self._gives_way_in(now))
        at = self._calendar.open_time(now + load) + seconds
        start = self._calendar.moment(at)
        return Outlook(len(self.handed) + tasks, start, start + task.left)

    def _need(self, task: ServiceTask) -> float:
        return self._longest(task) + self.margin.per_task

    def _free(self, now: float, then: float = 0.0) -> float:
        """The open time at which the device is free at worst, if one more task runs for `then`."""
        busy = self._busy_until(now)
        sooner = now + self._gives_way_in(now) + self.margin.until_begun + self.margin.per_task
        return self._calendar.open_time(min(busy, sooner) + then)

    def _busy_until(self, now: float) -> float:
        """When the device is free at worst, if nothing on it gives way."""
        at = now + self.margin.until_begun
        for task in self.handed.values():
            at += self._need(task)
        if self.began is not None:
            elapsed = now - self.began
            longest = self._need(next(iter(self.handed.values())))
            # assume that an overrunning task takes as long again as it has run so far
            at -= elapsed if elapsed <= longest else longest - elapsed
        return max(at, self.leased_until or 0.0)

    def _gives_way_in(self, now: float) -> float:
        """Seconds within which the only task on the device gives way for certain, if it does."""
        if len(self.handed) != 1 or self.leased_until is not None:
            return math.inf
        return self._gives_way(next(iter(self.handed.values())))

    def _first_end(self, first: ServiceTask) -> float:
        """When the first of the handed-over tasks should end or give way."""
        assert self.began is not None
        return min(self.began + first.left, math.inf if self.pausing is None else self.pausing)

    def _on_device(self, task: ServiceTask, now: float) -> Outlook:
        start = self.began if self.began is not None else now
        for position, each in enumerate(self.handed.values()):
            if each is task:
                return Outlook(position, start, max(now, start + task.left))
            ends = start + each.left
            if position == 0 and self.pausing is not None:
                ends = min(ends, self.pausing)
            start = max(now, ends)
        raise KeyError(task.id)


AT_ONCE = 1.0
"""Seconds that may be promised in addition to the share of future time."""
OF_ONE_USER = 0.5
"""The fraction of the promisable time that one user can have."""


class Promises:
    """The promised tasks that have not been handed over."""

    def __init__(self, share: float, calendar: Calendar) -> None:
        self._share = share
        self._calendar = calendar
        self._order = Ranked()
        self._keys: dict[str, tuple[Key, float]] = {}
        self._tasks: dict[str, ServiceTask] = {}
        self._ready: dict[str, ServiceTask] = {}
        self._of_user: defaultdict[str, float] = defaultdict(float)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def possible(self, task: ServiceTask, need: float, free: float, soonest: float) -> bool:
        """Whether a task can be promised its start without breaking earlier promises.

        The device is free from `free` on, and the task cannot start before `soonest`.
        """
        key = self._key(task)
        room = AT_ONCE + self._share * (key[0] - free)
        mine = self._of_user.get(task.caller.user, 0.0)
        return (
            self._share > 0.0
            and self.keep(task, need, free, soonest)
            and self._order.before(key).seconds <= room
            and (not mine or mine + need <= OF_ONE_USER * room)
            and self._order.slack(self._share, key) - need >= self._share * free - AT_ONCE
        )

    def keep(self, task: ServiceTask, need: float, free: float, soonest: float) -> bool:
        """Whether the device can start a task, and everything promised before, in time."""
        key = self._key(task)
        last: float = key[0]
        return (
            max(free + self._order.before(key).seconds, soonest) <= last
            and self._order.slack(1.0, key) - need >= free
        )

    def make(self, task: ServiceTask, need: float) -> None:
        """Promise a task its start; it counts from now on, but is picked only once it is ready."""
        self._enter(task, self._key(task), need)
        self._of_user[task.caller.user] += need

    def sort_again(self) -> None:
        """Compute all open times anew, since planned pauses have changed."""
        known, ready = self._keys, self._ready
        self._order, self._keys, self._ready = Ranked(), {}, {}
        for name, (_, need) in known.items():
            task = self._tasks.pop(name)
            if task.latest is not None:  # others step back again if they have to
                self._enter(task, self._key(task), need)
                if name in ready:
                    self._ready[name] = task

    def has(self, task: ServiceTask) -> bool:
        """Whether a task counts as promised."""
        return task.id in self._keys

    def ready(self, task: ServiceTask) -> None:
        """Mark a promised task as waiting, so that it can be picked."""
        if task.id in self._keys:
            self._ready[task.id] = task

    def end(self, task: ServiceTask) -> None:
        """Remove a task that no longer waits."""
        key, need = self._keys.pop(task.id, (None, 0.0))
        if key is None:
            return
        self._order.remove(key)
        self._tasks.pop(task.id)
        self._ready.pop(task.id, None)
        if task.latest is not None:
            self._of_user[task.caller.user] -= need
            if self._of_user[task.caller.user] < 1e-9:
                del self._of_user[task.caller.user]

    def drop_missed(self, now: float) -> None:
        """Forget tasks that are still being written although they had to start by now.

        They will be refused; until then, the device must not wait for them.
        """
        for _, name in [*takewhile(lambda key: key[0] < now, self._order)]:
            if name not in self._ready:
                self.end(self._tasks[name])

    def allow(self, task: ServiceTask, until: float) -> bool:
        """Whether a task may occupy the device until `until` without breaking promises."""
        if task.id not in self._keys:
            return self._order.slack(1.0) >= until
        key, need = self._keys[task.id]
        self._order.remove(key)
        try:
            return self._order.slack(1.0) >= until
        finally:
            self._order.add(key, need)

    def step_back(self, task: ServiceTask, need: float, until: float) -> None:
        """Put a task right behind the promised ones it would make late, ahead of later promises."""
        if task.id in self._keys:
            return
        last = self._order.last_below(until)
        assert last is not None
        self._enter(task, (math.nextafter(last[0], math.inf), task.id), need)
        self._ready[task.id] = task

    def most_urgent(self) -> tuple[ServiceTask | None, bool]:
        """The first ready task, and whether it comes before all tasks that are not ready."""
        for before, (_, each) in enumerate(self._order):
            if each in self._ready:
                return self._ready[each], before == 0
        return None, False

    def first_ready(self) -> ServiceTask | None:
        """The first task that waits and has a promise of its own."""
        found = (self._ready.get(each) for _, each in self._order)
        return next((task for task in found if task and task.latest is not None), None)

    def due(self, by: float) -> float:
        """Total seconds of the tasks that have to start by an open time."""
        return self._order.before((by,)).seconds if self._keys else 0.0

    def _enter(self, task: ServiceTask, key: Key, need: float) -> None:
        self._order.add(key, need)
        self._keys[task.id] = key, need
        self._tasks[task.id] = task

    def _key(self, task: ServiceTask) -> Key:
        assert task.latest is not None
        return self._calendar.last_start(task.latest), task.id


SAFETY = 2.0
FADING = 0.995


class Peak:
    """The highest recent value of a measurement."""

    def __init__(self, first: float) -> None:
        self.value = first
        self._least = first

    def note(self, value: float) -> None:
        """Add a measured value."""
        self.value = max(value, self._least, FADING * self.value)


class Margin:
    """Measured delays of one device and the store, to allow for in plans.

    Each figure is the highest seen, which fades as lower ones follow; plans allow for twice that.
    """

    def __init__(self) -> None:
        self.commit = Peak(0.005)
        """Seconds until a task is accepted."""
        self.start = Peak(0.005)
        """Seconds from the planned to the real start of a task."""
        self.task = Peak(0.0005)
        """Seconds that a task takes beyond its own time."""

    @property
    def until_ready(self) -> float:
        """Seconds until a task that arrives now can be handed over."""
        return SAFETY * self.commit.value

    @property
    def until_begun(self) -> float:
        """Seconds by which a start may be late."""
        return SAFETY * self.start.value

    @property
    def per_task(self) -> float:
        """Seconds to allow for each task."""
        return SAFETY * self.task.value
