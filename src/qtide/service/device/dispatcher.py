"""The dispatcher of a device: which task goes to its worker when, and what becomes of it there.

The worker gets a task shortly before the current one should end, so that the device need not wait
for the service; never earlier, since a more urgent task may still come. The hand-over is on disk
before the task goes to the device, and the answer is on disk before it is sent to any client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from qtide.payloads.encoded import Encoded
from qtide.service import records
from qtide.service.background import BackgroundTasks
from qtide.service.configuration import DeviceSetup
from qtide.service.device.queue import DeviceQueue
from qtide.service.device.state import DeviceState
from qtide.service.device.worker_link import WorkerLink
from qtide.service.endings import Endings
from qtide.service.task import State, Task
from qtide.system.frames import Header
from qtide.world import World
from qtide.world.signal import Signal
from qtide.world.world import Alarm

log = logging.getLogger(__name__)

AHEAD = 0.01
"""Seconds of work that a worker gets in advance: a commit, and the delays of a busy loop."""
MOST_AHEAD = 16
"""Tasks that a worker gets in advance, however short they are."""
SHORTEST_REST = 0.001
IDLE_POLL = 0.01


class Dispatcher:
    """Runs the tasks of one device to their ends, on its present worker."""

    def __init__(
        self,
        name: str,
        setup: DeviceSetup,
        world: World,
        endings: Endings,
        queue: DeviceQueue,
        state: DeviceState,
    ) -> None:
        self.on_begun: Callable[[Task], None] = lambda _: None
        self._name = name
        self._setup = setup
        self._world = world
        self._endings = endings
        self._queue = queue
        self._state = state
        self._worker: WorkerLink | None = None
        self._changed = Signal(world)
        self._cancelling: set[str] = set()
        self._overdue: dict[str, Alarm] = {}
        self._handing = BackgroundTasks(world)
        self._background = BackgroundTasks(world)

    def add(self, task: Task) -> None:
        """Let an accepted task wait for the device."""
        self._queue.add(task)
        self._changed.set()

    def look_again(self) -> None:
        """Something changed: tasks may be started that could not be, or the other way round."""
        self._changed.set()

    def cancel(self, task: Task) -> bool:
        """End a task that waits; False if it is on the device, which is asked to stop."""
        if task.id in self._queue.waiting:
            self._queue.withdraw(task)
            return True
        self._cancelling.add(task.id)
        if task.id in self._queue.handed:
            self._ask_to_stop(task)
        return False

    def forget(self, task: Task) -> None:
        """A task is over."""
        self._cancelling.discard(task.id)

    async def serve(self, worker: WorkerLink) -> None:
        """Keep a worker busy, until it ends."""
        self._worker = worker
        self._handing.start(self._keep_handing_over())
        try:
            async for header, body in worker.messages():
                self._receive(header, body)
        finally:
            self._worker = None
            await self._handing.cancel()

    async def take_back(self) -> None:
        """The worker is gone: its tasks are run again, or have failed too often."""
        tasks = list(self._queue.handed.values())
        for alarm in self._overdue.values():
            alarm.cancel()
        self._overdue.clear()
        for task in tasks:
            self._queue.take_back(task, task.used, self._world.now())
        await self.recover(tasks)

    async def recover(self, tasks: list[Task]) -> None:
        """Tasks were on the device when it, or the service, died."""
        again = [task for task in tasks if not self._out_of_retries(task)]
        for task in tasks:
            if task not in again:
                await self._give_up(task)
        if again:
            await self._endings.surely(records.hand_back(again))
        for task in again:
            task.state, task.started = State.QUEUED, None
            if task.id in self._cancelling:  # it was cancelled while that was written
                await self._give_up(task)
            else:
                self.add(task)

    async def run_dry(self, grace: float) -> None:
        """Wait until nothing is on the device, but no longer than the limit."""
        end = self._world.now() + grace
        while (self._queue.handed or self._background) and self._world.now() < end:
            await self._world.sleep(IDLE_POLL)

    async def _keep_handing_over(self) -> None:
        """Hand over what there is room for, then wait until there may be more to do."""
        while True:
            self._changed.clear()
            while tasks := self._batch():
                await self._hand_over(tasks)
            await self._changed.wait(self._idle_time())

    def _batch(self) -> list[Task]:
        """The next tasks, as long as the worker should run out of them soon."""
        now = self._world.now()
        batch: list[Task] = []
        while self._queue.waiting and self._state.open(now) and self._room(now):
            batch.append(self._queue.hand_over(now))
        return batch

    def _room(self, now: float) -> bool:
        return len(self._queue.handed) < MOST_AHEAD and self._queue.load(now) <= AHEAD

    def _idle_time(self) -> float | None:
        """How long nothing can be handed over, unless something changes."""
        full = len(self._queue.handed) >= MOST_AHEAD
        if not self._queue.waiting or self._state.held_back or full:
            return None
        now = self._world.now()
        return max(SHORTEST_REST, self._queue.load(now) - AHEAD, self._state.calendar.pause(now))

    async def _hand_over(self, tasks: list[Task]) -> None:
        now = self._world.now()
        for task in tasks:
            task.attempts += 1
        payloads = await self._endings.surely(records.hand_over(tasks, now))
        for task, payload in zip(tasks, payloads, strict=True):
            task.state, task.started = State.RUNNING, now
            if self._worker is not None:
                self._worker.send(self._order(task), payload)
            if task.id in self._cancelling:
                self._ask_to_stop(task)

    def _order(self, task: Task) -> Header:
        """The message to the worker; only an emulated device waits for the time of its profile."""
        timed = self._setup.profile is not None or task.format == "burst"
        words = {"ticket": _ticket(task), "format": task.format, "shots": task.shots}
        return words | {"seed": task.seed, "seconds": task.seconds if timed else 0.0}

    def _ask_to_stop(self, task: Task) -> None:
        if self._worker is not None:
            self._worker.send({"cancel": _ticket(task)})

    def _receive(self, header: Header, body: bytes) -> None:
        """A task has started, or is over. Answers of earlier attempts are ignored."""
        begun = "ticket" not in header
        ticket: str = header["began"] if begun else header["ticket"]
        task = self._queue.handed.get(ticket.partition(":")[0])
        if task is None or _ticket(task) != ticket or task.state is not State.RUNNING:
            return
        if begun:
            self._started(task, header["at"])
        else:
            self._end(task, header, body)

    def _started(self, task: Task, at: float) -> None:
        # whatever the worker's clock says, it is between the hand-over and now
        at = min(max(at, task.started or 0.0), self._world.now())
        self._queue.begin(task, at)
        task.started = at
        self._overdue[task.id] = self._world.alarm(self._setup.limit, lambda: self._stop(task))
        self.on_begun(task)

    def _end(self, task: Task, header: Header, body: bytes) -> None:
        fault = header.get("fault")
        used = 0.0 if fault else header["seconds"]
        self._queue.take_back(task, used, self._world.now())
        self._changed.set()
        if alarm := self._overdue.pop(task.id, None):
            alarm.cancel()
        if fault:
            self._background.start(self._pause_after_fault(task, fault))
            return
        self._state.calendar.sound()
        self._state.trouble = None
        self._cancelling.discard(task.id)
        answer = Encoded(header["format"], body) if "format" in header else None
        state = State.DONE if answer else State.CANCELLED if "cancelled" in header else State.FAILED
        error = header.get("refused") or header.get("error")
        self._background.start(self._endings.finish(task, state, used, error, answer))

    async def _pause_after_fault(self, task: Task, why: str) -> None:
        """The device itself failed on a task: pause the device, then run the task again."""
        rest = self._state.calendar.fault(self._world.now())
        self._state.trouble = why
        log.warning("device failed", extra={"device": self._name, "why": why, "rest": rest})
        if task.attempts > self._setup.retries:
            task.error = why
        await self.recover([task])

    def _stop(self, task: Task) -> None:
        """A task takes too long: its worker is killed; the task is charged, and not run again."""
        if task.id in self._queue.handed and self._worker is not None:
            task.error = f"it occupied the device for more than {self._setup.limit:g} s"
            task.used = self._setup.limit
            self._background.start(self._worker.end())

    def _out_of_retries(self, task: Task) -> bool:
        tired = task.attempts > self._setup.retries
        return bool(tired or task.error or task.id in self._cancelling)

    async def _give_up(self, task: Task) -> None:
        if task.id in self._cancelling:
            self._cancelling.discard(task.id)
            await self._endings.finish(task, State.CANCELLED, task.used)
        else:
            why = task.error or f"it was on the device {task.attempts} times when that stopped"
            await self._endings.finish(task, State.FAILED, task.used, why)


def _ticket(task: Task) -> str:
    """What identifies an answer: the task and the attempt."""
    return f"{task.id}:{task.attempts}"
