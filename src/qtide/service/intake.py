"""The intake: what is checked before a task is accepted. Accepted means on disk."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from qtide.payloads.encoded import Encoded
from qtide.service import records
from qtide.service.backlog import Backlog
from qtide.service.device.device import ServedDevice
from qtide.service.device.validator import HungUp
from qtide.service.quotas import Meter
from qtide.service.records import Draft
from qtide.service.refusals import CannotPromise
from qtide.service.store import Store
from qtide.service.task import Caller, Task
from qtide.world import World
from qtide.world.lock import Lock


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
    ) -> None:
        self.on_accepted: Callable[[Task], None] = lambda _: None
        self._world = world
        self._store = store
        self._meter = meter
        self._backlog = backlog
        self._chance = chance
        self._promising = Lock(world)

    async def accept(self, caller: Caller, device: ServedDevice, submission: Submission) -> Task:
        """Accept a task: from here on it is not lost."""
        checked = await device.validator.check(submission.payload, caller.user, submission.hung_up)
        shots = device.shots(submission.shots)
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
            seconds=device.seconds(checked.seconds, checked.size, shots),
            submitted=self._world.now(),
            priority=submission.priority,
            max_wait=submission.max_wait,
        )
        draft = Draft(checked.encoded, submission.digest, submission.key, submission.request)
        self._meter.accept(caller)
        try:
            await self._keep_or_refuse(device, task, draft)
        except BaseException:
            self._meter.count(caller, -1)
            raise
        return task

    async def _keep_or_refuse(self, device: ServedDevice, task: Task, draft: Draft) -> None:
        if task.max_wait is None:
            await self._write(task, draft)
            return
        async with self._promising:  # two promises at once could break each other
            self._refuse_if_late(device, task)
            await self._write(task, draft)

    async def _write(self, task: Task, draft: Draft) -> None:
        fits = self._meter.fits(task.caller, task.seconds, task.submitted)
        if fits:
            self._meter.hold(task, task.submitted)
        try:
            await self._store.write(records.insert(task, draft))
        except BaseException:
            if fits:
                self._meter.settle(task, task.submitted)
            raise
        self._backlog.add(task, held=fits)
        self.on_accepted(task)

    def _refuse_if_late(self, device: ServedDevice, task: Task) -> None:
        """Refuse a task whose longest wait cannot be promised."""
        reason, start = device.why_waiting(), None
        if not self._meter.fits(task.caller, task.seconds, task.submitted):
            reason, start = "quota", self._meter.next_day(task.submitted)
        elif reason in ("queue", "calibration"):
            start = device.late_start(task)
            if start is None:
                return
        when = "at an unknown time" if start is None else f"in about {start - task.submitted:.1f} s"
        raise CannotPromise(
            reason,
            start,
            f"the task may wait {task.max_wait:g} s, but could start {when} ({reason}); "
            "allow a longer wait, or submit it later",
        )
