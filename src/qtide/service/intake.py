"""The intake: what is checked before a task is accepted. Accepted means on disk."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from qtide.payloads.encoded import Encoded
from qtide.service import records
from qtide.service.backlog import Backlog
from qtide.service.configuration import Priorities
from qtide.service.device.device import ServedDevice
from qtide.service.device.validator import HungUp
from qtide.service.extent import Extent
from qtide.service.quotas import Meter
from qtide.service.records import Draft
from qtide.service.refusals import CannotPromise, Forbidden
from qtide.service.store import Store
from qtide.service.task import Caller, Task
from qtide.world import World


@dataclass(frozen=True)
class Submission:
    """What a caller submits."""

    device: str
    payload: Encoded
    shots: int | None = None
    seed: int | None = None
    name: str = ""
    priority: int = 0
    max_wait: float | None = None
    key: str | None = None
    digest: str = ""
    request: bytes | None = None
    api: str = "native"
    """The API by which it was submitted."""
    hung_up: HungUp | None = None
    """Says when its sender has gone, so that nothing more is done for it."""

    @property
    def size(self) -> int:
        """The bytes that it takes on disk."""
        return len(self.payload.data) + len(self.request or b"")


class Intake:
    """Accepts tasks, or refuses them with a reason."""

    def __init__(
        self,
        world: World,
        store: Store,
        meter: Meter,
        backlog: Backlog,
        chance: random.Random,
        priorities: Priorities | None = None,
    ) -> None:
        self.on_accepted: Callable[[Task], None] = lambda _: None
        self._world = world
        self._store = store
        self._meter = meter
        self._backlog = backlog
        self._chance = chance
        self.priorities = priorities or Priorities()

    async def accept(self, caller: Caller, device: ServedDevice, submission: Submission) -> Task:
        """Accept a task: from here on it is not lost."""
        self._check_priority(caller, submission.priority)
        checked = await device.validator.check(submission.payload, caller.user, submission.hung_up)
        shots = device.shots(submission.shots)
        data = checked.encoded
        extent = Extent.of(len(data.data), shots, checked.qubits, checked.size)
        seed = self._chance.getrandbits(31) if submission.seed is None else submission.seed
        task = Task(
            id=str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            caller=caller,
            device=device.name,
            name=submission.name,
            format=checked.encoded.format,
            shots=shots,
            seed=seed,
            size=checked.size,
            seconds=device.seconds(checked.seconds, extent, checked.size, shots),
            extent=None if data.format == "burst" else extent,
            submitted=self._world.now(),
            priority=submission.priority,
            max_wait=submission.max_wait,
        )
        self._meter.check_fits(caller, task.seconds)
        draft = Draft(checked.encoded, submission.digest, submission.key, submission.request)
        self._meter.accept(caller)
        try:
            await self._keep_or_refuse(device, task, draft)
        except BaseException:
            self._meter.count(caller, -1)
            raise
        return task

    async def _keep_or_refuse(self, device: ServedDevice, task: Task, draft: Draft) -> None:
        """Reserve what the task needs, in the moment in which it is checked, then write it."""
        blocked = self._meter.blocked(task.caller, task.seconds, task.submitted)
        if task.max_wait is not None:
            self._promise(device, task, over_quota=blocked is not None)
        if blocked is None:
            self._meter.hold(task, task.submitted)
        with self._backlog.arriving(task):
            try:
                await self._write(device, task, draft)
            except BaseException:
                device.release(task)
                if blocked is None:
                    self._meter.settle(task, task.submitted)
                raise
            self._backlog.add(task, blocked)
        self.on_accepted(task)

    async def _write(self, device: ServedDevice, task: Task, draft: Draft) -> None:
        await self._store.write(records.insert(task, draft))
        if not device.committed(task):
            await self._store.write(records.withdraw(task))
            raise _cannot(task, device.why_waiting(), None, "the store took too long to accept it")

    def _promise(self, device: ServedDevice, task: Task, *, over_quota: bool) -> None:
        """Promise a task its start, or refuse it."""
        reason = device.why_waiting()
        if over_quota:
            raise _late(task, "quota", self._meter.next_day(task.submitted))
        if reason not in ("queue", "calibration"):
            raise _late(task, reason, None)
        outlook = device.reserve(task)
        if outlook is None:
            return
        if outlook.start > task.submitted + (task.max_wait or 0.0):
            raise _late(task, reason, outlook.start)
        why = "as much of the device is promised as may be, or the wait is too short to promise"
        raise _cannot(task, reason, outlook.start, why)

    def _check_priority(self, caller: Caller, priority: int) -> None:
        most = self.priorities.users.get(caller.user, self.priorities.most)
        if priority > most and not caller.operator:
            raise Forbidden(f"you may ask for a priority of {most} at most, not {priority}")


def _late(task: Task, reason: str, start: float | None) -> CannotPromise:
    when = "at an unknown time" if start is None else f"in about {start - task.submitted:.1f} s"
    return _cannot(task, reason, start, f"but could start {when} ({reason})")


def _cannot(task: Task, reason: str, start: float | None, why: str) -> CannotPromise:
    said = f"the task may wait {task.max_wait:g} s, {why}; allow a longer wait, or submit it later"
    return CannotPromise(reason, start, said)
