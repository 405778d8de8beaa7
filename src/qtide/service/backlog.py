"""The backlog: all tasks that are not over, at their devices or held back by a quota."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from qtide.service.background import BackgroundTasks
from qtide.service.device.device import ServedDevice
from qtide.service.quotas import Meter, SubjectKey
from qtide.service.standing import Standing
from qtide.service.task import State, Task
from qtide.world import World

log = logging.getLogger(__name__)

AT_ONCE = 50
"""Tasks that are passed on before others have their turn."""


class Backlog:
    """Knows each of them from its acceptance to its end."""

    def __init__(self, world: World, devices: Mapping[str, ServedDevice], meter: Meter) -> None:
        self._world = world
        self._devices = devices
        self._meter = meter
        self._tasks: dict[str, Task] = {}
        self._arriving: dict[str, Task] = {}
        self._over_quota: dict[str, SubjectKey] = {}
        self._blocked: dict[SubjectKey, dict[str, Task]] = {}
        """The tasks beyond a quota, by whose it is, in the order of their arrival."""
        self._background = BackgroundTasks(world)

    def find(self, id: str) -> Task | None:  # noqa: A002 - what users call it
        """The task with that id, if it is not over."""
        return self._tasks.get(id) or self._arriving.get(id)

    @contextmanager
    def arriving(self, task: Task) -> Iterator[None]:
        """A task is being written: whoever sends it again gets this one, and is told of its end."""
        self._arriving[task.id] = task
        try:
            yield
        finally:
            del self._arriving[task.id]

    def add(self, task: Task, blocked: SubjectKey | None) -> None:
        """A task was accepted; `blocked` says whose quota leaves no room for it, if any's."""
        self._tasks[task.id] = task
        if blocked is None:
            self._let_wait(task)
        else:
            self._park(task, blocked)

    def cancel(self, task: Task) -> bool:
        """Cancel a task; True if it was only waiting and can be ended at once."""
        if self._unpark(task) or task.device not in self._devices:
            return True
        return self._devices[task.device].dispatcher.cancel(task)

    def remove(self, task: Task) -> None:
        """A task is over."""
        self._tasks.pop(task.id, None)
        self._meter.settle(task, self._world.now())
        self._meter.count(task.caller, -1)
        if task.device in self._devices:
            self._devices[task.device].ended(task)
        self._admit_of(self._meter.keys(task.caller))

    def admit(self) -> None:
        """Pass on tasks whose quota has room again."""
        self._admit_of(list(self._blocked))

    def _admit_of(self, subjects: Iterable[SubjectKey]) -> None:
        """Look only at the first of those whom one of these quotas holds back."""
        waiting = [subject for subject in subjects if subject in self._blocked]
        left = AT_ONCE
        for number, subject in enumerate(waiting):
            left -= self._pass_on(subject, left)
            if left <= 0:
                self._background.start(self._admit_later(waiting[number:]))
                return

    async def _admit_later(self, subjects: list[SubjectKey]) -> None:
        await self._world.sleep(0.0)
        self._admit_of(subjects)

    def _pass_on(self, subject: SubjectKey, most: int) -> int:
        """Pass on tasks in order, as long as there is room; return how many were looked at."""
        now, seen = self._world.now(), 0
        while seen < most and (tasks := self._blocked.get(subject)):
            task = next(iter(tasks.values()))
            blocked = self._meter.blocked(task.caller, task.seconds, now)
            if blocked == subject:
                return seen + 1
            seen += 1
            self._unpark(task)
            if blocked is not None:
                self._park(task, blocked)
                continue
            self._meter.hold(task, now)
            self._let_wait(task)
        return seen

    def _let_wait(self, task: Task) -> None:
        """Let a task wait for its device, unless that is gone: then for its return."""
        if task.device in self._devices:
            self._devices[task.device].dispatcher.add(task)

    def _park(self, task: Task, blocked: SubjectKey) -> None:
        self._over_quota[task.id] = blocked
        self._blocked.setdefault(blocked, {})[task.id] = task

    def _unpark(self, task: Task) -> bool:
        blocked = self._over_quota.pop(task.id, None)
        if blocked is None:
            return False
        del self._blocked[blocked][task.id]
        if not self._blocked[blocked]:
            del self._blocked[blocked]
        return True

    def resettle(self, device: ServedDevice) -> None:
        """Let the tasks of a device that took the place of another one, or came back, wait there.

        Only called while none of them is on a device.
        """
        for task in self._tasks.values():
            waits = task.id not in self._over_quota and task.state is State.QUEUED
            if waits and task.device == device.name:
                device.dispatcher.add(task)

    def blocked_by_device(self) -> Counter[str]:
        """How many tasks of each device wait for room in a quota."""
        return Counter(self._tasks[each].device for each in self._over_quota)

    def standing(self, task: Task) -> Standing:
        """Why a task waits, and until when."""
        if task.id in self._over_quota:
            return Standing("quota", not_before=self._meter.next_day(self._world.now()))
        if task.device not in self._devices:
            return Standing("down")
        device = self._devices[task.device]
        outlook = device.outlook(task)
        if outlook is None:  # between quota and device, while that is committed
            return Standing("queue")
        return Standing(None if task.state is State.RUNNING else device.why_waiting(), outlook)

    async def take_up(self, tasks: list[Task]) -> None:
        """Continue the tasks that an earlier service left."""
        for task in tasks:
            self._meter.count(task.caller, 1)
            self._tasks[task.id] = task
            now = self._world.now()
            if task.device in self._devices:
                self._devices[task.device].take_up(task, now)
            if task.device not in self._devices:
                log.warning("task of a device that is gone", extra=for_log(task))
            elif task.state is State.RUNNING:
                self._meter.hold(task, now)
                await self._devices[task.device].dispatcher.recover([task])
            else:
                blocked = self._meter.blocked(task.caller, task.seconds, now)
                if blocked is None:
                    self._meter.hold(task, now)
                self.add(task, blocked)


def for_log(task: Task) -> dict[str, Any]:
    """What a log may say of a task: who and how long, never what."""
    return {
        "task": task.id,
        "device": task.device,
        "user": task.caller.user,
        "account": task.caller.account,
        "job": task.caller.job,
        "state": str(task.state),
        "attempts": task.attempts,
        "qpu_seconds": round(task.used, 6),
    }
