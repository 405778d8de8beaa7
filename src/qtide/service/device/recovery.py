"""Recovery: what becomes of tasks that leave the device without an answer.

They run again or are given up, and the time that they were on the device is booked: to the owner of
a task that may have been the cause, or to the site if nobody is to blame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from qtide.backends.devices.device import Occupation
from qtide.backends.payloads.payload import Encoded
from qtide.core.world.world import World
from qtide.service import records
from qtide.service.configuration import DeviceSetup
from qtide.service.device.calendar import DeviceState
from qtide.service.device.device_lease import STOPPED, DeviceLease
from qtide.service.device.device_queue import DeviceQueue
from qtide.service.records import Endings
from qtide.service.task import Booking, ServiceTask, TaskState

log = logging.getLogger(__name__)

LOST = "it was on the device {} times when that stopped"


class Recovery:
    """Takes tasks back from the device, and lets them wait again or ends them."""

    def __init__(
        self,
        name: str,
        setup: DeviceSetup,
        world: World,
        endings: Endings,
        queue: DeviceQueue,
        lease: DeviceLease,
        state: DeviceState,
        again: Callable[[ServiceTask], None],
    ) -> None:
        self.cancelling: set[str] = set()
        """Tasks that end as soon as they leave the device."""
        self.returning = 0
        """Tasks that gave way and are being written; until they wait again, nothing more starts."""
        self.on_back: Callable[[ServiceTask], None] = lambda _: None
        """Called with each task that waits again."""
        self._recovering = 0
        self._name = name
        self._setup = setup
        self._world = world
        self._endings = endings
        self._queue = queue
        self._lease = lease
        self._state = state
        self._again = again

    def __bool__(self) -> bool:
        """Whether tasks are on their way between device and queue."""
        return bool(self._recovering or self.returning)

    def take_back(self, occupations: Sequence[Occupation]) -> list[ServiceTask]:
        """Take back the tasks of a worker that died, of which one may be to blame.

        `occupations` is what the worker noted, of which it may not have reported the last.
        """
        tasks = list(self._queue.handed.values())
        known = {each.ticket: each for each in occupations}
        for task in tasks:
            task.suspect = True
            self._settle(task, known.get(task.ticket))
        return tasks

    def leave(self, occupations: Sequence[Occupation]) -> None:
        """Leave the tasks on the device to the next service; the attempt does not count."""
        tasks = list(self._queue.handed.values())
        known = {each.ticket: each for each in occupations}
        for task in tasks:
            task.attempts -= task.opened or task.started is not None
            self._settle(task, known.get(task.ticket), "the service stopped")
        if self._lease.holder is not None:
            self._lease.leave()
        self._endings.note(records.hand_back(tasks))

    async def recover(self, tasks: list[ServiceTask]) -> None:
        """Rerun or end tasks that were on the device when it or the service died."""
        self._recovering += 1
        try:
            again = [task for task in tasks if not self._out_of_retries(task)]
            for task in tasks:
                if task not in again:
                    await self._give_up(task)
            if again:
                await self._endings.write_with_retry(records.hand_back(again))
            for task in again:
                task.unbooked.clear()
                task.state, task.started = TaskState.QUEUED, None
                await self._let_wait(task)
        finally:
            self._recovering -= 1

    async def gave_way(self, task: ServiceTask, so_far: Encoded | None) -> None:
        """Keep what a task has measured so far, and let it wait again; no attempt is lost."""
        task.attempts -= 1
        task.state, task.started = TaskState.QUEUED, None
        self.returning += 1
        try:
            await self._endings.write_with_retry(records.pause(task, so_far))
            task.unbooked.clear()
        finally:
            self.returning -= 1
        await self._let_wait(task, back=False)

    async def pause_after_fault(self, task: ServiceTask, why: str) -> None:
        """Pause the device after its own fault, and rerun the task."""
        rest = self._state.calendar.fault(self._world.now())
        self._state.trouble = why
        log.warning("device failed", extra={"device": self._name, "why": why, "rest": rest})
        if task.attempts > self._setup.retries:
            task.error = why
        await self.recover([task])

    def _settle(self, task: ServiceTask, noted: Occupation | None, cause: str = "") -> None:
        """Take a task back from a worker that has ended, and book the time it was on the device.

        Its owner pays if it was on the device when the worker died, as it may have been the cause.
        """
        now = self._world.now()
        if noted is None and task.started is not None:  # its worker could not write its notes
            part = 1.0 if task.company is None else task.company.part
            seconds = part * (now - task.started)
            noted = Occupation(task.ticket, task.started, seconds, finished=False)
        used = 0.0
        if noted is not None:
            if noted.finished:
                cause = cause or "its answer was lost with the device's process"
            used = 0.0 if cause else noted.seconds
            task.unbooked.append(Booking(noted.began, noted.seconds, cause))
        task.used += used
        self._queue.take_back(task, used, now)
        task.company = None
        if task.session is not None and noted is not None:
            self._lease.left(noted.seconds)

    async def _let_wait(self, task: ServiceTask, *, back: bool = True) -> None:
        """Let a task wait again, unless it was cancelled during the write."""
        if task.id in self.cancelling:
            await self._give_up(task)
            return
        self._again(task)
        if back:
            self.on_back(task)

    def _out_of_retries(self, task: ServiceTask) -> bool:
        tired = task.attempts > self._setup.retries or task.idle is not None
        return bool(tired or task.error or task.id in self.cancelling)

    async def _give_up(self, task: ServiceTask) -> None:
        if task.id in self.cancelling:
            self.cancelling.discard(task.id)
            await self._endings.finish(task, TaskState.CANCELLED, task.used)
        else:
            lost = STOPPED if task.idle is not None else LOST.format(task.attempts)
            why = task.error or lost
            await self._endings.finish(task, TaskState.FAILED, task.used, why)
