"""Routing: which device of a class a task goes to, and whether it moves while it waits.

A task for `any:gate` goes to the device on which it should end first, among those whose expected
fidelity is not below the user's floor or, without one, hardly below the best. While it waits, it
moves to another of them if it should end clearly earlier there, or if its device is down. A session
stays where it was sent, since its tasks name that device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import PhaseError, QtideError
from qtide.core.world.world import BackgroundTasks, World
from qtide.service import records
from qtide.service.allocations import NothingLeft
from qtide.service.backlog import Backlog
from qtide.service.device.served_device import ServedDevice
from qtide.service.intake import Intake, Submission
from qtide.service.store import Store
from qtide.service.task import (
    ANY,
    UNFORESEEABLE,
    Caller,
    CannotPromise,
    NotFound,
    Route,
    RouteOption,
    ServiceTask,
)

LOSS = 0.02
"""The share of the best fidelity that an earlier end may cost, if the user set no floor."""
GAIN, LEAST_GAIN = 0.1, 0.2
"""The share of its wait, and the seconds, by which a task has to gain to move."""
ROUND = 0.5
"""Seconds between two looks whether waiting tasks should move."""
AT_ONCE = 100
"""The most tasks to look at in a round, divided among their users."""


def members(
    kind: str, devices: Mapping[str, ServedDevice], caller: Caller, api: str
) -> list[ServedDevice]:
    """The devices of a class that a caller may use: `gate` for circuits, or a kind of device."""
    found = []
    for device in devices.values():
        takes = bool(device.properties.get("qubits")) if kind == "gate" else False
        if (
            (takes or device.setup.kind == kind)
            and device.offered_by(api)
            and device.admits(caller)
        ):
            found.append(device)
    if not found:
        raise NotFound(
            f"there is no device in the class {ANY}{kind}; name a device or another kind"
        )
    return found


class Router:
    """Sends tasks for a class of devices to one of them, and moves them while they wait."""

    def __init__(
        self,
        world: World,
        store: Store,
        devices: Mapping[str, ServedDevice],
        backlog: Backlog,
        intake: Intake,
        background: BackgroundTasks,
    ) -> None:
        self._world = world
        self._store = store
        self._devices = devices
        self._backlog = backlog
        self._intake = intake
        self._waiting: dict[str, deque[ServiceTask]] = {}
        """The tasks of each user, those that were looked at last at the end."""
        self._background = background

    async def submit(self, caller: Caller, submission: Submission) -> ServiceTask:
        """Accept a task on the best device of its class.

        If that can promise no start, or an allocation is used up there, the next one is tried.
        """
        route, order = await self._routes(caller, submission)
        refusal: CannotPromise | NothingLeft | None = None
        for device in order:
            routed = replace(submission, device=device.name, route=route)
            try:
                task = await self._intake.accept(caller, device, routed)
            except (CannotPromise, NothingLeft) as error:
                refusal = refusal or error
                continue
            self.watch(task)
            return task
        assert refusal is not None
        raise refusal

    async def estimate(self, caller: Caller, submission: Submission) -> dict[str, Any]:
        """What a task would take on the device that it would go to."""
        route, (device, *_) = await self._routes(caller, submission)
        named = replace(submission, device=device.name)
        found = await self._intake.estimate(caller, device, named)
        return found | {"fidelity": route.options[device.name].fidelity}

    def watch(self, task: ServiceTask) -> None:
        """Look from time to time whether a task should move, as long as it waits."""
        if task.idle is not None:
            return
        if not self._waiting:
            self._background.start(self._keep_looking())
        self._waiting.setdefault(task.caller.user, deque()).append(task)

    async def _routes(
        self, caller: Caller, submission: Submission
    ) -> tuple[Route, list[ServedDevice]]:
        """The devices that may run a task, best first, with what to expect of each."""
        kind = submission.device.removeprefix(ANY)
        options: dict[str, RouteOption] = {}
        ends: dict[str, float] = {}
        refusals: list[Exception] = []
        for device in members(kind, self._devices, caller, submission.api):
            try:
                named = replace(submission, device=device.name, min_fidelity=None)
                task, checked = await self._intake.draft(caller, device, named)
            except (QtideError, PhaseError) as error:
                refusals.append(error)
                continue
            options[device.name] = RouteOption(checked.fidelity, task.seconds)
            ends[device.name] = _end_if_added(device, task)
        if not options:
            raise refusals[0]
        route = Route(kind, submission.min_fidelity, options).acceptable(LOSS)
        if not route.options:
            best = max(each.fidelity or 0.0 for each in options.values())
            raise PayloadRefused(
                f"no device of {ANY}{kind} should reach a fidelity of {submission.min_fidelity:g}; "
                f"the best should reach {best:.3g}: ask for less, or for a shorter circuit"
            )
        names = sorted(route.options, key=lambda name: (ends[name], -route.fidelity(name)))
        return route, [self._devices[name] for name in names]

    async def _keep_looking(self) -> None:
        while self._waiting:
            await self._world.sleep(ROUND)
            each = max(1, AT_ONCE // len(self._waiting))
            for user, tasks in list(self._waiting.items()):
                for _ in range(min(each, len(tasks))):
                    task = tasks.popleft()
                    if task.over:
                        continue
                    tasks.append(task)
                    if self._backlog.may_move(task):
                        self._move_if_better(task)
                        await self._world.sleep(0.0)  # a look at a long queue takes a millisecond
                if not tasks:
                    del self._waiting[user]

    def _move_if_better(self, task: ServiceTask) -> None:
        """Let a task wait for the device on which it ends clearly earlier, and on which it may."""
        assert task.route is not None
        now, here = self._world.now(), self._devices.get(task.device)
        latest = inf
        if here is not None and here.why_waiting() not in UNFORESEEABLE:
            outlook = here.outlook(task)
            if outlook is None:
                return
            latest = outlook.end - max(LEAST_GAIN, GAIN * (outlook.end - now))
        ends = []
        for name, option in task.route.options.items():
            device = self._devices.get(name)
            if device is None or device is here or device.removed:
                continue
            if not device.admits(task.caller):  # not any more
                continue
            there = replace(task, device=name, seconds=option.seconds)
            ends.append((_end_if_added(device, there), name))
        for end, name in sorted(ends):
            if end >= latest:
                return
            if self._backlog.move(task, self._devices[name], task.route.options[name].seconds):
                task.moves += 1
                self._store.post(records.move(task))  # if that is lost, it stays where it was
                return


def _end_if_added(device: ServedDevice, task: ServiceTask) -> float:
    """When a task should end on a device; never, if that is down for an unknown time."""
    if device.why_waiting() in UNFORESEEABLE:
        return inf
    return device.outlook_if_added(task).end
