"""The backlog of unfinished tasks, queued at their devices or held back by a quota."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from qtide.core.world.world import BackgroundTasks, World
from qtide.service.allocations import AllocationBook, NothingLeft
from qtide.service.device.served_device import ServedDevice
from qtide.service.quotas import QuotaMeter, SubjectKey
from qtide.service.task import ServiceTask, TaskStanding, TaskState

log = logging.getLogger(__name__)

AT_ONCE = 50
"""Tasks to release from a quota before yielding to the event loop."""


class Backlog:
    """Keeps every task from its acceptance to its end."""

    def __init__(
        self,
        world: World,
        devices: Mapping[str, ServedDevice],
        meter: QuotaMeter,
        allocations: AllocationBook,
    ) -> None:
        self._world = world
        self._devices = devices
        self._meter = meter
        self._allocations = allocations
        self._tasks: dict[str, ServiceTask] = {}
        self._arriving: dict[str, ServiceTask] = {}
        self._ending: set[str] = set()
        """Tasks that were cancelled while they waited; their end is being written."""
        self._over_quota: dict[str, SubjectKey] = {}
        self._blocked: dict[SubjectKey, dict[str, ServiceTask]] = {}
        """Tasks held back by a quota, by its user or account, in order of arrival."""
        self.blocked_by_device: Counter[str] = Counter()
        """Number of tasks per device that wait for room in a quota."""
        self._background = BackgroundTasks(world)

    def __bool__(self) -> bool:
        return bool(self._tasks or self._over_quota or self._blocked)

    def find(self, id: str) -> ServiceTask | None:  # noqa: A002 - the name users know
        """The unfinished task with that id, if any."""
        return self._tasks.get(id) or self._arriving.get(id)

    @contextmanager
    def arriving(self, task: ServiceTask) -> Iterator[None]:
        """Make a task findable while it is written, so that a repeated request gets it."""
        self._arriving[task.id] = task
        try:
            yield
        finally:
            del self._arriving[task.id]

    def add(self, task: ServiceTask, blocked: SubjectKey | None) -> None:
        """Add an accepted task; `blocked` is the user or account without room in its quota."""
        self._tasks[task.id] = task
        if blocked is None:
            self._let_wait(task)
        else:
            self._park(task, blocked)

    def cancel(self, task: ServiceTask) -> bool:
        """Cancel a task; return True if it was only waiting and can end at once."""
        waiting = (
            self._unpark(task)
            or task.device not in self._devices
            or self._devices[task.device].dispatcher.cancel(task)
        )
        if waiting:
            self._ending.add(task.id)
        return waiting

    def remove(self, task: ServiceTask) -> None:
        """Remove a finished task, charge it, and release tasks that now fit their quota."""
        self._tasks.pop(task.id, None)
        self._ending.discard(task.id)
        self._meter.charge(task, self._world.now())
        if self._allocations.balances:
            self._allocations.settle(task)
        self._meter.count(task.caller, -1)
        if task.device in self._devices:
            self._devices[task.device].ended(task)
        self._admit_of(self._meter.keys(task.caller))

    def admit(self) -> None:
        """Release the tasks whose quota has room again."""
        self._admit_of(list(self._blocked))

    def _admit_of(self, subjects: Iterable[SubjectKey]) -> None:
        """Release tasks held back by these quotas, `AT_ONCE` at a time."""
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
        """Release tasks in order while the quota has room; return how many were examined."""
        now, seen = self._world.now(), 0
        while seen < most and (tasks := self._blocked.get(subject)):
            task = next(iter(tasks.values()))
            blocked = self._meter.blocked_task(task, now)
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

    def _let_wait(self, task: ServiceTask) -> None:
        """Queue a task at its device; if the device is gone, the task waits for its return."""
        if task.device in self._devices:
            self._devices[task.device].dispatcher.add(task)

    def _park(self, task: ServiceTask, blocked: SubjectKey) -> None:
        self._over_quota[task.id] = blocked
        self._blocked.setdefault(blocked, {})[task.id] = task
        self.blocked_by_device[task.device] += 1

    def _unpark(self, task: ServiceTask) -> bool:
        blocked = self._over_quota.pop(task.id, None)
        if blocked is None:
            return False
        self.blocked_by_device[task.device] -= 1
        del self._blocked[blocked][task.id]
        if not self._blocked[blocked]:
            del self._blocked[blocked]
        return True

    def take_over(self, device: ServedDevice) -> None:
        """Queue the tasks of a device that was replaced or came back.

        Call this only while none of them is on a device.
        """
        for task in self._tasks.values():
            waits = task.id not in self._over_quota and task.state is TaskState.QUEUED
            if waits and task.id not in self._ending and task.device == device.name:
                device.dispatcher.add(task)

    def may_move(self, task: ServiceTask) -> bool:
        """Whether a task only waits for its device, and may wait for another one instead."""
        if task.id in self._over_quota or task.id in self._ending or task.id not in self._tasks:
            return False
        here = self._devices.get(task.device)
        return here.dispatcher.may_leave(task) if here else task.state is TaskState.QUEUED

    def move(self, task: ServiceTask, device: ServedDevice, seconds: float) -> bool:
        """Let a task wait for another device; return False if a quota or allocation forbids it."""
        now, more = self._world.now(), seconds - task.seconds
        if more > 0 and self._meter.blocked(task.caller, more, now) is not None:
            return False
        self._allocations.settle(task)
        try:
            self._allocations.reserve(replace(task, device=device.name, seconds=seconds))
        except NothingLeft:
            self._allocations.reserve(task, accepted=True)
            return False
        if task.device in self._devices:
            self._devices[task.device].dispatcher.give_up_waiting(task)
            self._devices[task.device].starts.forget(task)
        used, task.used = task.used, 0.0
        self._meter.charge(task, now)  # reserve what it should take there instead
        task.device, task.seconds, task.used = device.name, seconds, used
        self._meter.hold(task, now)
        device.dispatcher.add(task)
        return True

    def routed(self) -> list[ServiceTask]:
        """The unfinished tasks that may move to another device."""
        return [task for task in self._tasks.values() if task.route is not None]

    def held_back(self, device: str) -> list[ServiceTask]:
        """The tasks of a device that wait for room in a quota."""
        found = (self._tasks[each] for each in self._over_quota)
        return [task for task in found if task.device == device]

    def over_quota(self, task: ServiceTask) -> bool:
        """Whether a task waits for room in a quota."""
        return task.id in self._over_quota

    def standing(self, task: ServiceTask) -> TaskStanding:
        """Why a task waits, and until when."""
        if task.id in self._over_quota:
            return TaskStanding("quota", not_before=self._meter.next_day(self._world.now()))
        if task.device not in self._devices:
            return TaskStanding("down")
        device = self._devices[task.device]
        outlook = device.outlook(task)
        if outlook is None:  # between quota and device, while the change is committed
            return TaskStanding(None if task.state is TaskState.RUNNING else "queue")
        return TaskStanding(
            None if task.state is TaskState.RUNNING else device.why_waiting(), outlook
        )

    async def take_up(self, tasks: list[ServiceTask]) -> None:
        """Take up the unfinished tasks of an earlier service."""
        for task in tasks:
            self._meter.count(task.caller, 1)
            self._allocations.reserve(task, accepted=True)
            self._tasks[task.id] = task
            now = self._world.now()
            if task.device in self._devices:
                self._devices[task.device].take_up(task, now)
            if task.device not in self._devices:
                log.warning("task of a device that is gone", extra=for_log(task))
            elif task.state is TaskState.RUNNING:
                self._meter.hold(task, now)
                await self._devices[task.device].dispatcher.recovery.recover([task])
            else:
                blocked = self._meter.blocked_task(task, now)
                if blocked is None:
                    self._meter.hold(task, now)
                self.add(task, blocked)


def for_log(task: ServiceTask) -> dict[str, Any]:
    """The fields of a task that may be logged: its owner and times, never its content."""
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
