"""The backlog: all tasks that are not over, at their devices or held back by a quota."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from qtide.service.device.device import ServedDevice
from qtide.service.quotas import Meter
from qtide.service.standing import Standing
from qtide.service.task import State, Task
from qtide.world import World

log = logging.getLogger(__name__)


class Backlog:
    """Knows each of them from its acceptance to its end."""

    def __init__(self, world: World, devices: Mapping[str, ServedDevice], meter: Meter) -> None:
        self._world = world
        self._devices = devices
        self._meter = meter
        self._tasks: dict[str, Task] = {}
        self._over_quota: dict[str, Task] = {}

    def find(self, id: str) -> Task | None:  # noqa: A002 - what users call it
        """The task with that id, if it is not over."""
        return self._tasks.get(id)

    def add(self, task: Task, *, held: bool) -> None:
        """A task was accepted; `held` says whether its seconds are within the quota."""
        self._tasks[task.id] = task
        if held:
            self._devices[task.device].dispatcher.add(task)
        else:
            self._over_quota[task.id] = task

    def cancel(self, task: Task) -> bool:
        """Cancel a task; True if it was only waiting and can be ended at once."""
        if self._over_quota.pop(task.id, None) or task.device not in self._devices:
            return True
        return self._devices[task.device].dispatcher.cancel(task)

    def remove(self, task: Task) -> None:
        """A task is over."""
        self._tasks.pop(task.id, None)
        self._meter.settle(task, self._world.now())
        self._meter.count(task.caller, -1)
        if task.device in self._devices:
            self._devices[task.device].ended(task)
        self.admit()

    def admit(self) -> None:
        """Pass on tasks whose quota has room again."""
        now = self._world.now()
        for task in list(self._over_quota.values()):
            if self._meter.fits(task.caller, task.seconds, now):
                del self._over_quota[task.id]
                self._meter.hold(task, now)
                self._devices[task.device].dispatcher.add(task)

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
            if task.device not in self._devices:
                log.warning("task of a device that is gone", extra=for_log(task))
            elif task.state is State.RUNNING:
                self._meter.hold(task, now)
                await self._devices[task.device].dispatcher.recover([task])
            else:
                fits = self._meter.fits(task.caller, task.seconds, now)
                if fits:
                    self._meter.hold(task, now)
                self.add(task, held=fits)


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
