"""The intake of tasks: what a caller submits, how it is checked, and why it may be refused."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qtide.backends.payloads.payload import Encoded, is_duration
from qtide.core.world.world import World
from qtide.service import records
from qtide.service.allocations import AllocationBook, as_quota
from qtide.service.backlog import Backlog
from qtide.service.configuration import Priorities
from qtide.service.device.served_device import ServedDevice
from qtide.service.device.validator import Checked, HungUp
from qtide.service.quotas import QuotaMeter
from qtide.service.records import Draft
from qtide.service.store import Store
from qtide.service.task import (
    ANY,
    ANY_CALIBRATION,
    UNFORESEEABLE,
    CalibrationTerms,
    Caller,
    CannotPromise,
    Conflict,
    Extent,
    Forbidden,
    Route,
    ServiceTask,
    owns,
)


@dataclass(frozen=True)
class Submission:
    """A caller's request to run a payload."""

    device: str
    payload: Encoded
    shots: int | None = None
    seed: int | None = None
    name: str = ""
    priority: int = 0
    max_wait: float | None = None
    idle: float | None = None
    """For a session, whose seconds are a burst's: how long it may hold the device idle."""
    session: str | None = None
    """The session that it belongs to."""
    min_fidelity: float | None = None
    """The least expected fidelity."""
    route: Route | None = None
    """The devices that it may move to."""
    beside_others: bool = False
    """Whether it may run at the same time as others' circuits, on other qubits."""
    terms: CalibrationTerms = ANY_CALIBRATION
    """Which calibration set it accepts."""
    key: str | None = None
    digest: str = ""
    request: bytes | None = None
    api: str = "native"
    """The API that received it."""
    hung_up: HungUp | None = None
    """Returns a future that resolves when the sender has gone, so that work for it can stop."""

    @classmethod
    def again(cls, task: ServiceTask, payload: Encoded, key: str | None) -> Submission:
        """The submission of a task that has ended, once more; without its wish for a start."""
        route = task.route
        return cls(
            device=task.device if route is None else f"{ANY}{route.kind}",
            min_fidelity=None if route is None else route.floor,
            payload=payload,
            shots=task.shots,
            seed=task.seed,
            name=task.name,
            priority=task.priority,
            beside_others=task.width is not None,
            terms=task.terms,
            key=key,
            digest=task.id,
        )

    @property
    def size(self) -> int:
        """Bytes it takes on disk."""
        return len(self.payload.data) + len(self.request or b"")


class Intake:
    """Accepts tasks, or refuses them with a reason."""

    def __init__(
        self,
        world: World,
        store: Store,
        meter: QuotaMeter,
        allocations: AllocationBook,
        backlog: Backlog,
        chance: random.Random,
        priorities: Priorities | None = None,
    ) -> None:
        self.on_accepted: Callable[[ServiceTask], None] = lambda _: None
        self._world = world
        self._store = store
        self._meter = meter
        self._allocations = allocations
        self._backlog = backlog
        self._chance = chance
        self.priorities = priorities or Priorities()

    async def accept(
        self, caller: Caller, device: ServedDevice, submission: Submission
    ) -> ServiceTask:
        """Check and store a task; once this returns, the task is durable."""
        task, checked = await self.draft(caller, device, submission)
        self._meter.check_fits(caller, task.seconds)
        draft = Draft(checked.encoded, submission.digest, submission.key, submission.request)
        self._meter.accept(caller)
        try:
            if self._allocations.balances:
                self._allocations.reserve(task)
            await self._keep_or_refuse(device, task, draft)
        except BaseException:
            self._allocations.settle(task)
            self._meter.count(caller, -1)
            raise
        return task

    async def estimate(
        self, caller: Caller, device: ServedDevice, submission: Submission
    ) -> dict[str, Any]:
        """What a task would take and when it would start, without accepting it."""
        task, checked = await self.draft(caller, device, submission)
        now = task.submitted
        fixed, each = device.split_seconds(checked, task.seconds, task.shots)
        reason = device.why_waiting()
        blocked = self._meter.blocked_task(task, now)
        known = reason not in UNFORESEEABLE and blocked is None
        outlook = device.outlook_if_added(task) if known else None
        likely = device.starts.likely(outlook.start - now) if outlook else None
        left = [quota.as_dict() for quota in self._meter.left(caller, now)]
        left += [as_quota(each) for each in self._allocations.left(caller, device.name)]
        for quota in left:
            if quota["qpu_seconds_left"] is not None:
                quota["qpu_seconds_left"] -= task.seconds
        return {
            "device": device.name,
            "shots": task.shots,
            "size": task.size,
            "qpu_seconds": task.seconds,
            "fixed_seconds": fixed,
            "seconds_per_shot": each,
            "known": device.knows_seconds(checked.seconds, task.extent or Extent(0, 0, 0, 0)),
            "left_afterwards": left,
            "reason": "quota" if blocked is not None else reason,
            "position": outlook.position if outlook else None,
            "expected_start": outlook.start if outlook else None,
            "expected_end": outlook.end if outlook else None,
            "likely_start": None if likely is None else [now + each for each in likely],
            "based_on": device.starts.starts,
        }

    async def draft(
        self, caller: Caller, device: ServedDevice, submission: Submission
    ) -> tuple[ServiceTask, Checked]:
        """Check a submission, and make the task that it would be."""
        self._check_priority(caller, submission.priority)
        session = self._session(caller, device, submission)
        checked = await device.validator.check(submission.payload, caller.user, submission.hung_up)
        checked.check_fidelity(submission.min_fidelity, device.name)
        shots = device.shots(submission.shots)
        data = checked.encoded
        extent = Extent.of(len(data.data), shots, checked.qubits, checked.size)
        seed = self._chance.getrandbits(31) if submission.seed is None else submission.seed
        seconds = device.seconds(checked, extent, shots)
        if not device.knows_seconds(checked.seconds, extent):
            # a guess must not refuse a task: cap it to the quota until one such task has run
            left = self._allocations.seconds_left(caller, device.name)
            seconds = min(seconds, self._meter.most_seconds(caller), left)
        task = ServiceTask(
            id=str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            caller=caller,
            device=device.name,
            name=submission.name,
            format=checked.encoded.format,
            shots=shots,
            seed=seed,
            size=checked.size,
            seconds=seconds,
            extent=None if is_duration(data.format) else extent,
            submitted=self._world.now(),
            priority=submission.priority,
            max_wait=submission.max_wait,
            idle=submission.idle,
            session=session,
            route=submission.route,
            width=_width(submission, checked),
            terms=submission.terms,
        )
        if task.idle is not None:
            device.check_session(task.seconds, task.idle)
        if why := task.terms.why_not(device.calibration_set, task.submitted):
            raise Conflict(f"the task {why}; submit it without that wish, or after a calibration")
        return task, checked

    async def _keep_or_refuse(self, device: ServedDevice, task: ServiceTask, draft: Draft) -> None:
        """Check and reserve what the task needs without yielding in between, then write it."""
        blocked = self._meter.blocked_task(task, task.submitted)
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
                    self._meter.charge(task, task.submitted)
                raise
            self._backlog.add(task, blocked)
            if outlook := device.outlook(task):
                device.starts.expect(task, outlook.start)
        self.on_accepted(task)

    async def _write(self, device: ServedDevice, task: ServiceTask, draft: Draft) -> None:
        await self._store.write(records.insert(task, draft))
        if not device.committed(task):
            await self._store.write(records.withdraw(task))
            raise _cannot(task, device.why_waiting(), None, "the store took too long to accept it")

    def _promise(self, device: ServedDevice, task: ServiceTask, *, over_quota: bool) -> None:
        """Promise a task its latest start, or refuse it."""
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

    def _session(self, caller: Caller, device: ServedDevice, submission: Submission) -> str | None:
        """The id of the session that a submission belongs to, if that is open to it."""
        if submission.session is None:
            return None
        found = self._backlog.find(submission.session)
        if found is None or found.idle is None or not owns(caller, found):
            raise Conflict(
                f"you have no open session {submission.session!r}; open one, or submit without it"
            )
        if found.device != device.name:
            raise Conflict(f"the session {found.id} holds {found.device}, not {device.name}")
        if submission.max_wait is not None or submission.idle is not None:
            raise Conflict("a task of a session starts at once; it takes no max_wait of its own")
        return found.id

    def _check_priority(self, caller: Caller, priority: int) -> None:
        most = self.priorities.users.get(caller.user, self.priorities.most)
        if priority > most and not caller.operator:
            raise Forbidden(f"you may ask for a priority of {most} at most, not {priority}")


def _width(submission: Submission, checked: Checked) -> int | None:
    """The qubits that a task takes if it may run beside others; a mere duration takes one."""
    alone = submission.idle is not None or submission.session is not None
    if not submission.beside_others or alone:
        return None
    return 1 if is_duration(checked.encoded.format) else checked.width


def _late(task: ServiceTask, reason: str, start: float | None) -> CannotPromise:
    when = "at an unknown time" if start is None else f"in about {start - task.submitted:.1f} s"
    return _cannot(task, reason, start, f"but could start {when} ({reason})")


def _cannot(task: ServiceTask, reason: str, start: float | None, why: str) -> CannotPromise:
    said = f"the task may wait {task.max_wait:g} s, {why}; allow a longer wait, or submit it later"
    return CannotPromise(reason, start, said)
