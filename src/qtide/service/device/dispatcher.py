"""The dispatcher of a device, which sends tasks to its worker and handles what it reports.

The worker gets a task shortly before the current one should end, so that the device need not wait
for the service; never earlier, since a more urgent task may still arrive. An attempt and its charge
count from the moment the task begins on the device: a task that was only handed over in advance is
not to blame for the death of its worker. The answer is on disk before any client gets it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice

from qtide.backends.devices.device import Occupation
from qtide.backends.payloads.payload import Encoded, is_duration
from qtide.core.processes import Header
from qtide.core.world.world import Alarm, BackgroundTasks, Signal, World
from qtide.service import records
from qtide.service.configuration import DeviceSetup
from qtide.service.device.calendar import DeviceState
from qtide.service.device.company import company_of
from qtide.service.device.device_lease import DeviceLease
from qtide.service.device.device_queue import DeviceQueue
from qtide.service.device.recovery import Recovery
from qtide.service.device.validator import WorkerLink
from qtide.service.records import Endings
from qtide.service.task import ANY_CALIBRATION, Booking, CalibrationSet, ServiceTask, TaskState

log = logging.getLogger(__name__)

AHEAD = 0.01
"""Seconds of work that a worker gets in advance, to cover a commit and a busy event loop."""
MOST_AHEAD = 16
"""Maximum number of tasks at a worker, however short they are."""
MOST_EXAMINED = 200
"""Waiting tasks among which to look for company of one that goes to the device."""
BEGIN_LIMITS = (1.0, 10.0)
"""Bounds of the seconds that an otherwise idle worker has to begin a task."""
SHORTEST_REST = 0.001
IDLE_POLL = 0.01
FENCED_POLL = 0.2
"""Seconds between two looks whether the lease has been renewed."""


class Dispatcher:
    """Runs the tasks of one device to their ends, on its current worker."""

    def __init__(
        self,
        name: str,
        setup: DeviceSetup,
        world: World,
        endings: Endings,
        queue: DeviceQueue,
        state: DeviceState,
    ) -> None:
        self.on_begun: Callable[[ServiceTask], None] = lambda _: None
        self.why_full: Callable[[ServiceTask], str | None] = lambda _: None
        """Returns why there is no room for the answer to a task that is to start, if so."""
        self._name = name
        self._setup = setup
        self._world = world
        self._endings = endings
        self._queue = queue
        self._state = state
        self._lease = DeviceLease(world, queue, endings)
        self._worker: WorkerLink | None = None
        self._changed = Signal(world)
        self._overdue: dict[str, Alarm] = {}
        self._unbegun: Alarm | None = None
        self._recorded: str | None = None
        """The last calibration set that was recorded."""
        self._handing = BackgroundTasks(world)
        self._background = BackgroundTasks(world)
        self.recovery = Recovery(
            name, setup, world, endings, queue, self._lease, state, again=self.add
        )

    def add(self, task: ServiceTask) -> None:
        """Queue an accepted task for the device; one of a session waits for that instead."""
        if task.idle is not None:
            self._lease.know(task)
        if task.session is None or not self._lease.take(task):
            self._queue.add(task, self._world.now())
        self._changed.set()

    def look_again(self) -> None:
        """Reconsider which tasks may start, because something changed."""
        self._changed.set()

    def cancel(self, task: ServiceTask) -> bool:
        """Remove a waiting task; return False if the device has it and was asked to stop it."""
        if task.id in self._queue.waiting:
            self._queue.withdraw(task)
            if task.idle is not None:
                for each in self._lease.forget(task):
                    self.add(each)
            return True
        if task.session is not None and self._lease.withdraw(task):
            return True
        if self._lease.close(task):
            self._changed.set()
            return False
        self.recovery.cancelling.add(task.id)
        if task.id in self._queue.handed:
            self._ask_to_stop(task)
        return False

    def may_leave(self, task: ServiceTask) -> bool:
        """Whether a task waits here, and may wait for another device instead."""
        movable = not task.share and task.max_wait is None and task.idle is None
        return movable and task.id in self._queue.waiting

    def give_up_waiting(self, task: ServiceTask) -> None:
        """Give a waiting task to another device."""
        self._queue.withdraw(task)

    def forget(self, task: ServiceTask) -> None:
        """Forget a finished task."""
        self.recovery.cancelling.discard(task.id)

    async def serve(self, worker: WorkerLink) -> None:
        """Keep a worker busy until it ends."""
        self._worker = worker
        self._handing.start(self._keep_handing_over())
        try:
            async for header, body in worker.messages():
                self._receive(header, body)
        finally:
            self._worker = None
            await self._handing.cancel()

    async def take_back(self, occupations: Sequence[Occupation]) -> None:
        """Take the tasks of a lost worker back, by what it noted; rerun them, or give up."""
        for alarm in self._overdue.values():
            alarm.cancel()
        self._overdue.clear()
        tasks = self.recovery.take_back(occupations)
        self._expect_begin()
        if self._lease.holder is not None:
            self._end_lease("the device's process ended")
        await self.recovery.recover(tasks)

    @property
    def at_rest(self) -> bool:
        """Whether no task waits, runs, is promised or is watched."""
        watched = self._unbegun or self._overdue or self.recovery.cancelling
        return not (self._at_work or watched or self._queue.waiting or self._queue.promised)

    @property
    def _at_work(self) -> bool:
        """Whether tasks are on the device, or on their way between it and the queue."""
        held = self._lease.holder is not None or self._lease.ending
        return bool(self._queue.handed or self.recovery or self._background or held)

    async def run_dry(self, grace: float) -> None:
        """Wait until the device has no tasks, for at most `grace` seconds."""
        end = self._world.now() + grace
        while self._at_work and self._world.now() < end:
            await self._world.sleep(IDLE_POLL)

    async def _keep_handing_over(self) -> None:
        """Hand over tasks while there is room, wait for a change, and repeat."""
        while True:
            self._changed.clear()
            while tasks := self._of_session() or self._batch() or self._made_way():
                await self._hand_over(tasks)
            await self._changed.wait(self._idle_time())

    def _of_session(self) -> list[ServiceTask]:
        """The tasks of the session that holds the device to hand over now; end it if it is over."""
        now = self._world.now()
        tasks: list[ServiceTask] = []
        while self._lease.holder is not None:
            task = self._lease.next(len(self._queue.handed)) if self._may_start(now) else None
            if task is None:
                break
            alone = task.suspect or task.terms != ANY_CALIBRATION  # the next set may be another
            if alone and self._queue.handed:
                break
            self._lease.withdraw(task)
            if self._fits(task, now):
                self._queue.lend(task, now)
                tasks.append(task)
        if self._lease.holder is not None and self._lease.over_in(len(self._queue.handed)) == 0:
            self._end_lease()
        return tasks

    def _end_lease(self, why: str | None = None) -> None:
        """Take the device back from a session; what it leaves waits like other tasks."""
        for task in self._lease.end(why):
            self.add(task)

    def _batch(self) -> list[ServiceTask]:
        """The tasks to hand over now, because the worker should run out of work soon."""
        now = self._world.now()
        batch: list[ServiceTask] = []
        while self._queue.waiting and self._may_start(now) and self._room(now):
            task = self._queue.next(now)
            if task is None or ((task.suspect or task.idle is not None) and self._queue.handed):
                break
            if task.idle is not None:
                self._lease.open(task)
                self._calibrated(task, self._state.calibration(now))
                self._endings.note(records.begin(task))
                self.on_begun(task)
                self._changed.set()
                break
            batch += [each for each in self._with_company(task, now) if self._taken(each, now)]
        return batch

    def _with_company(self, task: ServiceTask, now: float) -> list[ServiceTask]:
        """A task, and those that run beside it."""

        def ready(each: ServiceTask) -> bool:
            return self._timed(each) and self._why_not(each, now) is None

        alone = self._setup.at_once == 1 or task.width is None or not ready(task)
        if alone or self._worker is None:
            return [task]
        others = filter(ready, islice(self._queue.sociable.values(), MOST_EXAMINED))
        qubits = self._worker.properties.get("divisible", 0)
        return company_of(task, others, qubits, self._setup.at_once)

    def _taken(self, task: ServiceTask, now: float) -> bool:
        """Take a task out of the queue for the device; end one whose calibration is not there."""
        if self._fits(task, now):
            self._queue.hand_over(task, now)
            return True
        self._queue.withdraw(task)
        self._changed.set()
        return False

    def _fits(self, task: ServiceTask, now: float) -> bool:
        """Whether a task may run now; end one that may not."""
        why = self._why_not(task, now)
        if why:
            ending = self._endings.finish(task, TaskState.FAILED, task.used, f"it {why}")
            self._background.start(ending)
        return why is None

    def _why_not(self, task: ServiceTask, now: float) -> str | None:
        """Why a task may not run now, such as for want of the calibration that it accepts."""
        return task.terms.why_not(self._state.calibration(now), now) or self.why_full(task)

    def _made_way(self) -> list[ServiceTask]:
        """Ask the task on the device to give way after its chunk, if another has to go before it.

        The other one is handed over at once, so that it starts right after the chunk.
        """
        now, chunk = self._world.now(), self._setup.chunk
        if chunk is None or not self._queue.waiting or len(self._queue.handed) != 1:
            return []
        (running,) = self._queue.handed.values()
        held = self._lease.holder is not None or self._queue.pausing is not None
        if held or not self._may_start(now) or not self._may_pause(running, now + chunk):
            return []
        urgent = self._queue.urgent(running, now)
        if urgent is None or urgent.suspect or self._worker is None:
            return []
        if urgent.idle is None and not self._taken(urgent, now):
            return []
        self._queue.pausing = now + chunk
        self._worker.send({"pause": running.ticket})
        return [] if urgent.idle is not None else [urgent]

    def _may_start(self, now: float) -> bool:
        """Whether a task may go to the device, if that has room."""
        busy = self.recovery.returning or self._endings.stuck or self._endings.fenced
        return not busy and self._state.open(now)

    def _may_pause(self, task: ServiceTask, by: float) -> bool:
        """Whether a task may give way by a time; a promised one and a suspect may not."""
        if task.started is None or task.suspect or task.max_wait is not None:
            return False
        return task.id not in self.recovery.cancelling and task.started + task.left > by

    def _room(self, now: float) -> bool:
        handed = self._queue.handed
        if any(task.suspect for task in handed.values()):
            return False
        return len(handed) < MOST_AHEAD and self._queue.load(now) <= AHEAD

    def _idle_time(self) -> float | None:
        """Seconds until the next hand-over; None to wait until something changes."""
        now, handed = self._world.now(), len(self._queue.handed)
        pause = self._state.calendar.pause(now)
        if self._lease.holder is not None:
            fenced = FENCED_POLL if self._endings.fenced else None
            times = (self._lease.over_in(handed), pause or None, fenced)
            return min((each for each in times if each is not None), default=None)
        full = handed >= MOST_AHEAD
        if not self._queue.waiting or self._state.held_back or full or self._endings.stuck:
            return None
        if self._endings.fenced:
            return FENCED_POLL
        return max(SHORTEST_REST, self._queue.load(now) - AHEAD, pause)

    async def _hand_over(self, tasks: list[ServiceTask]) -> None:
        for task in tasks:
            task.handed += 1
            task.state, task.opened = TaskState.RUNNING, False
        payloads = await self._endings.look(records.payloads(tasks))
        for task, (payload, earlier) in zip(tasks, payloads, strict=True):
            if self._worker is not None:
                order = self._order(task)
                so_far = earlier if task.progress else None
                if so_far is not None:
                    order["earlier"] = [so_far.format, len(so_far.data)]
                self._worker.send(order, payload + (so_far.data if so_far else b""))
            if task.id in self.recovery.cancelling:
                self._ask_to_stop(task)
        self._expect_begin()

    def _expect_begin(self) -> None:
        """Set the alarm for the first handed-over task if it has not begun."""
        if self._unbegun is not None:
            self._unbegun.cancel()
            self._unbegun = None
        first = next(iter(self._queue.handed.values()), None)
        if first is not None and first.started is None:
            limit = min(max(BEGIN_LIMITS[0], self._setup.limit), BEGIN_LIMITS[1])
            self._unbegun = self._world.alarm(limit, self._replace_worker)

    def _replace_worker(self) -> None:
        """Kill a worker that does not begin its task because it is stopped or hangs."""
        log.warning("device does not begin its task", extra={"device": self._name})
        if self._worker is not None:
            self._background.start(self._worker.end())

    def _order(self, task: ServiceTask) -> Header:
        """The message to the worker; only emulated devices wait for the time of a profile."""
        words: Header = {"ticket": task.ticket, "format": task.format, "shots": task.shots}
        if task.suspect:
            words["suspect"] = True
        if self._setup.chunk is not None:
            words |= {"chunk": self._setup.chunk, "whole": task.seconds}
            words |= {"share": task.share, "progress": task.progress}
        if self._endings.deadline is not None:
            words["before"] = self._endings.deadline
        if task.company is not None and task.company.first:
            words["beside"] = task.company.others
        seconds = task.left_alone if self._timed(task) else 0.0
        return words | {"seed": task.seed, "seconds": seconds}

    def _timed(self, task: ServiceTask) -> bool:
        return self._setup.profile is not None or is_duration(task.format)

    def _ask_to_stop(self, task: ServiceTask) -> None:
        if self._worker is not None:
            self._worker.send({"cancel": task.ticket})

    def _receive(self, header: Header, body: bytes) -> None:
        """Handle a message that a task is unpacked, began or ended; ignore earlier attempts."""
        kind = next(each for each in ("ticket", "began", "opened") if each in header)
        ticket: str = header[kind]
        task = self._queue.handed.get(ticket.partition(":")[0])
        if task is None or task.ticket != ticket or task.state is not TaskState.RUNNING:
            return
        if kind == "opened":
            self._opened(task)
        elif kind == "began":
            self._started(task, header["at"])
        else:
            self._end(task, header, body)

    def _opened(self, task: ServiceTask) -> None:
        """Count an attempt of a suspect, since only it can be to blame if its worker dies now."""
        task.opened = True
        task.attempts += 1
        self._endings.note(records.begin(task))

    def _started(self, task: ServiceTask, at: float) -> None:
        # clamp the worker's clock to between the end of the last task and now
        now = self._world.now()
        at = min(max(at, self._queue.began or 0.0), now)
        self._queue.margin.start.note(at - (self._queue.began or at))
        self._queue.begin(task, at)
        task.started = at
        task.beside = 0 if task.company is None else task.company.others
        self._calibrated(task, self._state.calibration(at))
        if not task.opened:
            task.attempts += 1
        self._expect_begin()
        if self._setup.chunk is not None:
            self._changed.set()  # from now on, it may be asked to give way
        self._endings.note(records.begin(task))
        self._overdue[task.id] = self._world.alarm(self._setup.limit, lambda: self._stop(task))
        self.on_begun(task)

    def _calibrated(self, task: ServiceTask, found: CalibrationSet | None) -> None:
        """Bind a task to the calibration set that it runs on, and record the set once."""
        if found is None:
            return
        task.calibration = found.id
        if found.id != self._recorded:
            self._recorded = found.id
            self._endings.note(records.note_calibration(self._name, found))

    def _end(self, task: ServiceTask, header: Header, body: bytes) -> None:
        fault = header.get("fault")
        used = 0.0 if fault else header["seconds"]
        now = self._world.now()
        if task.started is not None and self._timed(task) and task.company is None:
            self._queue.margin.task.note(now - task.started - min(used, task.left))
        task.used += used
        if "began" in header:
            task.unbooked.append(Booking(header["began"], header["seconds"], fault or ""))
        task.suspect = False
        if "calibration" in header:
            known = self._state.stated
            if known is None or known.id != header["calibration"]:
                known = CalibrationSet(header["calibration"], now, known.metrics if known else {})
            self._state.stated = known
            self._calibrated(task, known)
        since = max(task.started or 0.0, self._queue.began or 0.0)
        ended = None if task.started is None else min(now, since + header["seconds"])
        self._queue.take_back(task, used, now, ended)
        task.company = None
        if task.session is not None:
            self._lease.left(header["seconds"])
        self._changed.set()
        if alarm := self._overdue.pop(task.id, None):
            alarm.cancel()
        self._expect_begin()
        if fault:
            self._background.start(self.recovery.pause_after_fault(task, fault))
            return
        self._state.calendar.sound()
        self._state.trouble = None
        answer = Encoded(header["format"], body) if "format" in header else None
        if "share" in header:
            task.share, task.progress = header["share"], header["progress"]
            self._background.start(self.recovery.gave_way(task, answer))
            return
        self.recovery.cancelling.discard(task.id)
        stopped = TaskState.CANCELLED if "cancelled" in header else TaskState.FAILED
        state = TaskState.DONE if answer else stopped
        error = header.get("refused") or header.get("error")
        self._background.start(self._endings.finish(task, state, task.used, error, answer))

    def _stop(self, task: ServiceTask) -> None:
        """Kill the worker of a task that takes too long; the task is charged and not rerun."""
        if task.id in self._queue.handed and self._worker is not None:
            task.error = f"it occupied the device for more than {self._setup.limit:g} s"
            self._background.start(self._worker.end())
