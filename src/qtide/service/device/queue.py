"""A queue: the tasks of one device, from their acceptance until they leave it.

It only decides: which task is next, when each should start, which promise can be made. So every
policy can be tested with its own clock. The policy's order holds unless it would break a promise: a
task that was accepted with a longest wait starts in time, whatever is submitted later.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from qtide.forecasts.outlook import Outlook
from qtide.service.policies import Owner, Policy, Shares
from qtide.service.task import Task

FORESIGHT = 1000
"""For how many tasks ahead an expected start is computed exactly; beyond, on average."""


class DeviceQueue:
    """Tasks that wait, in the order of a policy, or were handed over, in that order."""

    def __init__(self, policy: Policy, shares: Shares) -> None:
        self._policy = policy
        self._shares = shares
        self._promised: dict[str, Task] = {}
        self.waiting: dict[str, Task] = {}
        self.handed: dict[str, Task] = {}
        self.began: float | None = None
        """When the first of the tasks handed over started."""

    def add(self, task: Task) -> None:
        """Let a task wait."""
        self._policy.add(task)
        self.waiting[task.id] = task
        if task.latest is not None:
            self._promised[task.id] = task

    def withdraw(self, task: Task) -> None:
        """Let it wait no longer."""
        del self.waiting[task.id]
        self._policy.remove(task)
        self._promised.pop(task.id, None)

    def hand_over(self, now: float) -> Task:
        """Choose the next task for the device."""
        task = self._choose(now)
        self.withdraw(task)
        if not self.handed:
            self.began = now
        self.handed[task.id] = task
        self._shares.serve(Owner.of(task.caller), task.seconds, now)
        return task

    def begin(self, task: Task, now: float) -> None:
        """The device has started a task."""
        if next(iter(self.handed), None) == task.id:
            self.began = now

    def take_back(self, task: Task, used: float, now: float) -> None:
        """A task has left the device: its owner is charged only for what it used."""
        del self.handed[task.id]
        self.began = now if self.handed else None
        self._shares.charge(Owner.of(task.caller), used - task.seconds, now)

    def load(self, now: float) -> float:
        """How long the device should still be busy with what was handed over."""
        if self.began is None:
            return 0.0
        tasks = iter(self.handed.values())
        first = max(0.0, self.began + next(tasks).seconds - now)
        return first + sum(task.seconds for task in tasks)

    def outlook(self, task: Task, now: float) -> Outlook:
        """Where a task stands, if nothing else is submitted."""
        if task.id in self.handed:
            return self._on_device(task, now)
        start, position = now + self.load(now), len(self.handed)
        for each in islice(self._order(now), FORESIGHT):
            if each is task:
                return Outlook(position, start, start + task.seconds)
            start, position = start + each.seconds, position + 1
        rest = len(self.waiting) - FORESIGHT
        mean = sum(each.seconds for each in self.waiting.values()) / len(self.waiting)
        return Outlook(position + rest, start + rest * mean, start + rest * mean + task.seconds)

    def can_promise(self, task: Task, now: float) -> bool:
        """Whether a waiting task, and all tasks that were promised a start, can start in time."""
        if task.latest is not None and self.outlook(task, now).start > task.latest:
            return False
        return self._kept(now + self.load(now))

    def _order(self, now: float) -> Iterator[Task]:
        """The policy's order, with promised tasks moved forward if they would be late."""
        if not self._promised:
            return self._policy.order(now)
        return self._with_promises(now)

    def _with_promises(self, now: float) -> Iterator[Task]:
        at, done, pending = now + self.load(now), set[str](), list(self._by_latest())
        for task in self._policy.order(now):
            while task.id not in done and (urgent := _urgent(pending, task, at)) is not None:
                yield urgent
                done.add(urgent.id)
                pending.remove(urgent)
                at += urgent.seconds
            if task.id not in done:
                yield task
                at += task.seconds
                if task in pending:
                    pending.remove(task)

    def _choose(self, now: float) -> Task:
        first = next(self._policy.order(now))
        if not self._promised:
            return first
        return _urgent(self._by_latest(), first, now + self.load(now)) or first

    def _kept(self, at: float) -> bool:
        """Whether the promises can be kept if the device is free for them from `at` on."""
        for task in self._by_latest():
            assert task.latest is not None
            if at > task.latest:
                return False
            at += task.seconds
        return True

    def _by_latest(self) -> list[Task]:
        return sorted(self._promised.values(), key=lambda task: task.latest or 0.0)

    def _on_device(self, task: Task, now: float) -> Outlook:
        start = self.began if self.began is not None else now
        for position, each in enumerate(self.handed.values()):
            if each is task:
                return Outlook(position, start, max(now, start + task.seconds))
            start = max(now, start + each.seconds)
        raise KeyError(task.id)


def _urgent(promised: list[Task], first: Task, at: float) -> Task | None:
    """The promised task that must go before `first`, if any would be late after it."""
    others = [task for task in promised if task is not first]
    at += first.seconds
    for task in others:
        assert task.latest is not None
        if at > task.latest:
            return others[0]
        at += task.seconds
    return None
