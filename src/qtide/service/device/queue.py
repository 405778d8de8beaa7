"""A queue: the tasks of one device, from their acceptance until they leave it.

It only decides: which task is next, when each should start, which promise can be made. So every
policy can be tested with its own clock. The policy's order holds unless it would break a promise: a
task that was accepted with a longest wait starts in time, whatever is submitted later.
"""

from __future__ import annotations

from collections.abc import Callable

from qtide.forecasts.outlook import Outlook
from qtide.service.device.calendar import Calendar
from qtide.service.device.margin import Margin
from qtide.service.device.promises import Promises
from qtide.service.policies import Owner, Policy, Shares
from qtide.service.task import Task

SHARE = 0.5
"""The share of the time ahead that may be promised."""


class DeviceQueue:
    """Tasks that wait, in the order of a policy, or were handed over, in that order."""

    def __init__(
        self,
        policy: Policy,
        shares: Shares,
        calendar: Calendar | None = None,
        share: float = SHARE,
        longest: Callable[[Task], float] = lambda task: task.seconds,
    ) -> None:
        self.margin = Margin()
        self._policy = policy
        self._shares = shares
        self._calendar = calendar or Calendar(None, 0.0)
        self._longest = longest
        self._promises = Promises(share, self._calendar)
        self.waiting: dict[str, Task] = {}
        self.handed: dict[str, Task] = {}
        self.began: float | None = None
        """When the first of the tasks handed over started."""

    def reserve(self, task: Task, now: float) -> Outlook | None:
        """Promise a task that is about to be added its start; or say what to expect without.

        From now on nothing is started, and nothing else promised, that would make it late.
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

    def release(self, task: Task) -> None:
        """A promised task is not added after all."""
        self._promises.end(task)

    def in_time(self, task: Task, now: float) -> bool:
        """Whether a promised task can still be started in time, as far as the clock says."""
        return task.latest is None or now + self.margin.until_begun <= task.latest

    def add(self, task: Task, now: float) -> None:
        """Let a task wait; what it was promised before a restart is tried to be kept."""
        self._policy.add(task, now)
        self.waiting[task.id] = task
        if task.latest is not None:
            if not self._promises.has(task):
                self._promises.make(task, self._need(task))
            self._promises.ready(task)

    def withdraw(self, task: Task) -> None:
        """Let it wait no longer."""
        del self.waiting[task.id]
        self._policy.remove(task)
        self._promises.end(task)

    def reorder(self, policy: Policy, now: float) -> None:
        """Let the waiting tasks wait in the order of another policy."""
        for task in self.waiting.values():
            policy.add(task, now)
        self._policy = policy

    def next(self, now: float) -> Task | None:
        """The next task for the device; None if it should wait for one that is being accepted."""
        first = self._policy.first()
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

    def hand_over(self, task: Task, now: float) -> None:
        """A waiting task goes to the device."""
        self._policy.serve(task, now)
        self.withdraw(task)
        if not self.handed:
            self.began = now
        self.handed[task.id] = task

    def begin(self, task: Task, now: float) -> None:
        """The device has started a task."""
        if next(iter(self.handed), None) == task.id:
            self.began = now

    def take_back(self, task: Task, used: float, now: float, ended: float | None = None) -> None:
        """A task has left the device, when it says so: its owner is charged for what it used."""
        del self.handed[task.id]
        self.began = (now if ended is None else ended) if self.handed else None
        self._policy.settle(task, used, now)
        self._shares.charge(Owner.of(task.caller), used, now)

    def load(self, now: float) -> float:
        """How long the device should still be busy with what was handed over."""
        if self.began is None:
            return 0.0
        tasks = iter(self.handed.values())
        first = max(0.0, self.began + next(tasks).seconds - now)
        return first + sum(task.seconds for task in tasks)

    def backlog(self, now: float) -> float:
        """How long a task behind all others would wait."""
        seconds = sum(task.seconds for task in self.waiting.values())
        open_now = self._calendar.open_time(now + self.load(now))
        return max(0.0, self._calendar.moment(open_now + seconds) - now)

    def outlook(self, task: Task, now: float) -> Outlook:
        """Where a task stands, if nothing else is submitted."""
        if task.id in self.handed:
            return self._on_device(task, now)
        tasks, seconds, promised = self._policy.ahead(task)
        open_now = self._calendar.open_time(now + self.load(now))
        overtaking = max(0.0, self._promises.due(open_now + seconds) - promised)
        start = self._calendar.moment(open_now + seconds + overtaking)
        if task.latest is not None:
            start = max(now, min(start, task.latest))
        return Outlook(len(self.handed) + tasks, start, start + task.seconds)

    def _if_added(self, task: Task, now: float) -> Outlook:
        self._policy.add(task, now)
        try:
            tasks, seconds, _ = self._policy.ahead(task)
        finally:
            self._policy.remove(task)
        at = self._calendar.open_time(now + self.load(now)) + seconds
        start = self._calendar.moment(at)
        return Outlook(len(self.handed) + tasks, start, start + task.seconds)

    def _need(self, task: Task) -> float:
        return self._longest(task) + self.margin.per_task

    def _free(self, now: float, then: float = 0.0) -> float:
        """From which open time on the device is free, at worst, if one more runs for `then`."""
        at = now + self.margin.until_begun
        for task in self.handed.values():
            at += self._need(task)
        if self.began is not None:
            elapsed = now - self.began
            longest = self._need(next(iter(self.handed.values())))
            # one that takes longer than ever is supposed to take as long again
            at -= elapsed if elapsed <= longest else longest - elapsed
        return self._calendar.open_time(at + then)

    def _on_device(self, task: Task, now: float) -> Outlook:
        start = self.began if self.began is not None else now
        for position, each in enumerate(self.handed.values()):
            if each is task:
                return Outlook(position, start, max(now, start + task.seconds))
            start = max(now, start + each.seconds)
        raise KeyError(task.id)
