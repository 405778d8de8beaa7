"""The backlog of unfinished tasks, queued at their devices or held back by a quota."""

from __future__ import annotations

import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from qtide.backends.payloads.payload import Encoded, is_duration
from qtide.core.world.world import BackgroundTasks, World
from qtide.service import records
from qtide.service.allocations import AllocationBook, NothingLeft, as_quota
from qtide.service.configuration import Priorities
from qtide.service.device.served_device import ServedDevice
from qtide.service.device.validator import Checked, HungUp
from qtide.service.quotas import QuotaMeter, SubjectKey
from qtide.service.records import Draft
from qtide.service.store import Store
from qtide.service.task import (
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
    TaskStanding,
    TaskState,
    owns,
)

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

    def _unpark(self, task: ServiceTask) -> bool:
        blocked = self._over_quota.pop(task.id, None)
        if blocked is None:
            return False
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

    def blocked_by_device(self) -> Counter[str]:
        """Number of tasks per device that wait for room in a quota."""
        return Counter(self._tasks[each].device for each in self._over_quota)

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
                await self._devices[task.device].dispatcher.recover([task])
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
