"""A device of the service: its worker, its queue, and who may use it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid5

from qtide.backends.devices.device import Occupation, WorkerLost
from qtide.backends.devices.profile import UNTIMED, profile
from qtide.backends.payloads.payload import PayloadRefused, is_duration
from qtide.core.forecasts import Outlook
from qtide.core.world.world import BackgroundTasks, Future, Signal, World
from qtide.service import records
from qtide.service.configuration import DeviceSetup, MaintenanceWindow
from qtide.service.device.calendar import Calendar, DeviceState
from qtide.service.device.device_queue import DeviceQueue
from qtide.service.device.dispatcher import FENCED_POLL, Dispatcher
from qtide.service.device.estimates import DurationEstimate, StartLearner
from qtide.service.device.validator import Checked, Validator, Workers
from qtide.service.limits import Limits
from qtide.service.policies.policy import POLICIES, Ahead, ShareOwner, Shares
from qtide.service.records import Endings
from qtide.service.task import (
    CalibrationSet,
    Caller,
    Extent,
    Forbidden,
    NotFound,
    ServiceTask,
    TaskState,
)

log = logging.getLogger(__name__)

COMPUTERS = UUID("6f0b6a5c-5d0e-4c4e-9d3e-2f1a7c0b8e11")
"""The namespace of the devices' ids, which keeps them the same after every start."""


def computer_id(device: str) -> UUID:
    """The id of a device, derived from its name alone."""
    return uuid5(COMPUTERS, device)


PAUSE_FIRST, PAUSE_MOST = 0.1, 30.0
"""Shortest and longest pause in seconds before restarting a worker that died."""
STEADY = 60.0
"""Seconds of running after which a worker counts as healthy."""
RETIRING = 60.0
"""Seconds beyond a task's limit that a retired device has to end."""


class ServedDevice:
    """A device that runs accepted tasks to their ends."""

    def __init__(
        self,
        name: str,
        setup: DeviceSetup,
        world: World,
        endings: Endings,
        shares: Shares,
        workers: Workers,
        limits: Limits | None = None,
    ) -> None:
        self.name = name
        self.setup = setup
        self.profile = profile(setup.profile) if setup.profile else UNTIMED
        self.removed = False
        """Whether the configuration no longer has it, so that it accepts no more tasks."""
        self.properties: dict[str, Any] = {}
        self.on_lost: Callable[[str], None] = lambda _: None
        """Called with its name for each worker that is lost."""
        self.validator = Validator(name, setup, world, workers, limits)
        self._world = world
        self._shares = shares
        self._workers = workers
        self._occupied: list[Occupation] = []
        """What the last worker noted."""
        self._estimate = DurationEstimate(setup.limit)
        self.starts = StartLearner()
        self._tried = Signal(world)
        self._running: Future[None] | None = None
        self._endings = endings
        calendar = Calendar(setup.calibration, world.now())
        policy = POLICIES.load(setup.policy)(shares)
        self._queue = DeviceQueue(
            policy, shares, calendar, setup.promised, self._longest, self._gives_way
        )
        self._state = DeviceState(calendar)
        self.dispatcher = Dispatcher(name, setup, world, endings, self._queue, self._state)

    def offered_by(self, api: str) -> bool:
        """Whether an API offers it."""
        return not self.removed and (self.setup.apis is None or api in self.setup.apis)

    def admits(self, caller: Caller) -> bool:
        """Whether a caller may use it; without named users and accounts, everybody may."""
        users, accounts = self.setup.users, self.setup.accounts
        if caller.operator or (users is None and accounts is None):
            return True
        return caller.user in (users or ()) or caller.account in (accounts or ())

    @property
    def state(self) -> str:
        """One of starting, idle, busy, error, maintenance, calibration."""
        return self._state.name(self._world.now(), busy=bool(self._queue.handed))

    @property
    def reason(self) -> str | None:
        """Why the device is in error, drained, or in maintenance."""
        window = self._state.calendar.maintenance(self._world.now())
        planned = window.reason if window else None
        return self._state.trouble or self._state.drained or planned

    @property
    def drained(self) -> bool:
        """Whether an operator drained it, and has not resumed it."""
        return self._state.drained is not None

    @property
    def maintenance(self) -> list[MaintenanceWindow]:
        """Planned maintenance that is not over."""
        now = self._world.now()
        return [each for each in self._state.calendar.windows if each.end > now]

    @property
    def back(self) -> float | None:
        """When a device that starts no tasks will start them again; None if that is not known."""
        now = self._world.now()
        if self._state.drained is not None or not self._state.present:
            return None
        return now + self._state.calendar.pause(now)

    @property
    def waiting(self) -> int:
        """Number of tasks waiting for it."""
        return len(self._queue.waiting)

    @property
    def running(self) -> int:
        """Number of tasks handed over to it."""
        return len(self._queue.handed)

    @property
    def on_device(self) -> list[ServiceTask]:
        """The tasks handed over to it, in order."""
        return list(self._queue.handed.values())

    @property
    def leased(self) -> bool:
        """Whether a session holds it."""
        return self._queue.leased_until is not None

    @property
    def line(self) -> list[ServiceTask]:
        """The tasks handed over to it, in order, then those that wait, in order of arrival."""
        return [*self._queue.handed.values(), *self._queue.waiting.values()]

    @property
    def calibration(self) -> dict[str, float] | None:
        """When it was last calibrated and is calibrated next, and for how long; None if never."""
        return self._state.calendar.described(self._world.now())

    @property
    def expected_wait(self) -> float | None:
        """Seconds that a new task would wait behind all others; None while drained or down.

        This includes planned maintenance, calibrations, and a pause after a fault.
        """
        if self.back is None:
            return None
        now = self._world.now()
        return max(self._queue.backlog(now), self._state.calendar.pause(now))

    def why_waiting(self) -> str:
        """Why a task in the device's queue waits."""
        return self._state.why_waiting(self._world.now())

    @property
    def calibration_set(self) -> CalibrationSet | None:
        """Its present calibration set; None before its first start."""
        return self._state.calibration(self._world.now())

    async def tried(self, limit: float) -> bool:
        """Wait up to `limit` seconds for its start to succeed or fail; return whether it did."""
        return await self._tried.wait(limit)

    def shots(self, wanted: int | None) -> int:
        """The number of shots to run: the requested one, if allowed, or the device's default."""
        if wanted is None:
            return self.profile.shots
        most = self.properties.get("most", {}).get("shots", wanted)
        if wanted > most:
            raise PayloadRefused(
                f"{self.name} takes 1 to {most} shots, not {wanted}; ask for fewer"
            )
        return wanted

    def seconds(self, checked: Checked, extent: Extent, shots: int) -> float:
        """Seconds that a task should occupy the device; refuse one beyond the device's limit."""
        if checked.seconds is None and self.setup.profile is None:
            fixed, each = checked.cost or (None, 0.0)
            expected = None if fixed is None else fixed + each * shots
            return self._estimate.seconds(extent, checked.size, expected)
        known = self.profile.payload_s + self.profile.shot_s * shots * checked.size
        seconds = known if checked.seconds is None else checked.seconds
        if seconds > self.setup.limit:
            raise PayloadRefused(
                f"the task would occupy {self.name} for {seconds:g} s, but no task may for more "
                f"than {self.setup.limit:g} s; split it"
            )
        return seconds

    def check_session(self, seconds: float, idle: float) -> None:
        """Refuse a session that may hold the device for too long."""
        plan = self.setup.sessions
        if plan is None:
            raise Forbidden(f"{self.name} takes no sessions; ask its operator for them")
        if seconds > plan.longest or idle > plan.idle:
            raise Forbidden(
                f"a session may hold {self.name} for {plan.longest:g} s, and for {plan.idle:g} s "
                f"without a task; not for {seconds:g} s and {idle:g} s"
            )

    def knows_seconds(self, payload_s: float | None, extent: Extent) -> bool:
        """Whether a task's duration is known, rather than guessed."""
        timed = payload_s is not None or self.setup.profile is not None
        return timed or self._estimate.knows(extent)

    def ended(self, task: ServiceTask) -> None:
        """Forget a finished task, and learn from its duration."""
        self.dispatcher.forget(task)
        self.starts.forget(task)
        if (
            task.state is TaskState.DONE
            and task.extent is not None
            and task.attempts == 1
            and not task.beside
        ):
            self._estimate.learn(task.extent, task.used)

    def outlook(self, task: ServiceTask) -> Outlook | None:
        """Expected position, start and end of a task, including pauses; None if it is not here."""
        if task.id not in self._queue.waiting and task.id not in self._queue.handed:
            return None
        found = self._queue.outlook(task, self._world.now())
        late = 0.0
        if task.id in self._queue.waiting:
            late = self._state.calendar.pause(found.start)
        return Outlook(found.position, found.start + late, found.end + late)

    def outlook_if_added(self, task: ServiceTask) -> Outlook:
        """What a task could expect if it were accepted now and nothing else were submitted."""
        found = self._queue.if_added(task, self._world.now())
        late = self._state.calendar.pause(found.start)
        return Outlook(found.position, found.start + late, found.end + late)

    def why(self, task: ServiceTask) -> tuple[Ahead | None, float]:
        """The work before a waiting task by the policy, and the seconds left of what runs."""
        now = self._world.now()
        waits = task.id in self._queue.waiting
        return (self._queue.ahead(task) if waits else None), self._queue.load(now)

    def split_seconds(self, checked: Checked, seconds: float, shots: int) -> tuple[float, float]:
        """The part of a task's seconds that it takes once, and the part for each shot."""
        if checked.seconds is not None:
            return checked.seconds, 0.0
        if self.setup.profile is not None:
            return self.profile.payload_s, self.profile.shot_s * checked.size
        fixed, each = checked.cost or (seconds, 0.0)
        scale = seconds / ((fixed + each * shots) or 1.0)  # what was learnt takes precedence
        return scale * fixed, scale * each

    def reserve(self, task: ServiceTask) -> Outlook | None:
        """Promise a new task its latest start, or return what to expect without a promise."""
        return self._queue.reserve(task, self._world.now())

    def release(self, task: ServiceTask) -> None:
        """Withdraw the promise to a task that is not accepted after all."""
        self._queue.release(task)
        self.dispatcher.look_again()

    def committed(self, task: ServiceTask) -> bool:
        """Note that a task is on disk; return whether it can still start in time."""
        now = self._world.now()
        self._queue.margin.commit.note(now - task.submitted)
        confirmed = self._queue.confirm(task, now)
        self.dispatcher.look_again()  # what was kept free for it may be free again
        return confirmed

    def take_up(self, task: ServiceTask, now: float) -> None:
        """Take up a task from before a restart: apply the current limit, and charge its usage."""
        task.seconds = min(task.seconds, self.setup.limit)
        self._shares.charge(ShareOwner.of(task.caller), task.used, now)

    def drain(self, reason: str | None) -> None:
        """Start no more tasks, for a reason; None starts them again."""
        self._state.drained = reason
        self.dispatcher.look_again()

    def plan(self, windows: Iterable[MaintenanceWindow]) -> int:
        """Set all planned maintenance; return how many promises it breaks."""
        broken = self._queue.plan(windows)
        self.dispatcher.look_again()
        return broken

    def reorder(self) -> None:
        """Reorder the waiting tasks, because shares have changed."""
        self._queue.reorder(POLICIES.load(self.setup.policy)(self._shares), self._world.now())
        self.dispatcher.look_again()

    def start(self, background: BackgroundTasks) -> None:
        """Run in the background until it is retired or the service stops."""
        self._running = background.start(self.run())

    async def retire(self) -> None:
        """Start nothing more, let the current tasks end, then end the worker."""
        self._state.retiring = True
        await self.dispatcher.run_dry(self.setup.limit + RETIRING)
        if self._running is not None:
            await self._world.cancel([self._running])
        await self.validator.close()

    def succeed(self, old: ServedDevice) -> None:
        """Replace a retired device; keep its learnt durations if the kind and options are equal."""
        if (self.setup.kind, self.setup.options) == (old.setup.kind, old.setup.options):
            self._estimate.adopt(old._estimate)

    async def run(self) -> None:
        """Keep a worker alive, and send it tasks."""
        pause = PAUSE_FIRST
        while True:
            began = self._world.now()
            try:
                await self._run_worker()
            except WorkerLost as error:
                self._state.trouble = str(error)
                self.on_lost(self.name)
                log.warning("device stopped", extra={"device": self.name, "why": str(error)})
            finally:
                self._tried.set()
                if self._state.closing:
                    self.dispatcher.recovery.leave(self._occupied)
                else:
                    await self.dispatcher.take_back(self._occupied)
            steady = self._world.now() - began > STEADY
            pause = PAUSE_FIRST if steady else min(2 * pause, PAUSE_MOST)
            await self._world.sleep(pause)
            while self._endings.fenced:  # the fence would end the next one at once
                pause = PAUSE_FIRST
                await self._world.sleep(FENCED_POLL)

    async def run_dry(self, grace: float) -> None:
        """Start nothing more, and wait up to `grace` seconds for the tasks on the device."""
        self._state.closing = True
        await self.dispatcher.run_dry(grace)

    async def close(self, grace: float) -> None:
        """Start nothing more, and end once the device is free or `grace` seconds have passed."""
        await self.run_dry(grace)
        await self.validator.close()

    def _longest(self, task: ServiceTask) -> float:
        """Worst-case seconds that a task may occupy the device."""
        if is_duration(task.format) or task.company is not None:
            return task.left
        return max(task.seconds, self._estimate.longest(task.extent)) - (task.seconds - task.left)

    def _gives_way(self, task: ServiceTask) -> float:
        """Seconds after which a task on the device gives way for certain, if it has to."""
        timed = self.setup.profile is not None or is_duration(task.format)
        if self.setup.chunk is None or task.max_wait is not None or not timed or task.suspect:
            return math.inf
        return self.setup.chunk

    async def _state_calibration(self) -> None:
        """Take the calibration set that the device reports, with the time it was first seen.

        A device that reports none has one with an id that changes with its properties.
        """
        reported = self.properties.get("calibration")
        self._state.own_sets = reported is not None
        words = json.dumps(self.properties, sort_keys=True)
        name = reported["id"] if reported else str(uuid5(computer_id(self.name), words))
        found = CalibrationSet(name, self._world.now(), self.properties.get("metrics", {}))
        self._state.stated = found
        at = await self._endings.write_with_retry(records.note_calibration(self.name, found))
        self._state.stated = CalibrationSet(name, at, found.metrics)

    async def _run_worker(self) -> None:
        """Run one worker from its start to its end."""
        worker = await self._workers.start(self.name, self.setup)
        try:
            self.properties = worker.properties
            self._state.present, self._state.trouble = True, None
            self._tried.set()
            log.info("device ready", extra={"device": self.name})
            await self._state_calibration()
            if not all(map(is_duration, self.properties["formats"])):
                self._world.start(self.validator.warm_up())
            await self.dispatcher.serve(worker)
        finally:
            self._state.present = False
            await worker.end()
            self._occupied = await worker.occupations()
        raise WorkerLost("the device's process ended by itself; it is being restarted")


def find_device(devices: Iterable[ServedDevice], name: str) -> ServedDevice:
    """The device of that name, or a refusal that names those that there are."""
    found = {each.name: each for each in devices}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise NotFound(f"there is no device {name!r}; there are: {known}")
    return found[name]
