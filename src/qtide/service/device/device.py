"""A machine: one device as the service sees it, with its worker, its state and its tasks.

The worker gets a task shortly before the one it works on should end, so that the device need not
wait for the service; never earlier, so that nobody is overtaken without need. That a task goes to
the device is on disk before it does, and its answer is on disk before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from qtide.devices.process import Process, WorkerLost
from qtide.devices.profile import Profile, profile
from qtide.payloads.encoded import Encoded
from qtide.payloads.payload import PayloadRefused
from qtide.service import records
from qtide.service.configuration import DeviceSetup
from qtide.service.device.estimate import Estimate
from qtide.service.device.queue import DeviceQueue, Outlook
from qtide.service.device.validator import Validator
from qtide.service.policies import POLICIES, Shares
from qtide.service.store import Store, StoreFailed
from qtide.service.task import Ending, State, Task
from qtide.system.frames import Header

log = logging.getLogger(__name__)

AHEAD = 0.01
"""Seconds of work that a worker is given in advance: a commit, and what delays a busy loop."""
MOST_AHEAD = 16
"""Tasks that a worker is given in advance, however short they are."""
PAUSE_FIRST, PAUSE_MOST = 0.1, 30.0
"""Seconds until a worker that died is started again."""
STEADY = 60.0
"""Seconds after which a worker counts as sound."""
UNTIMED = Profile("untimed", 0.0, 0.0, 1000)


class ServedDevice:
    """Takes tasks that were accepted and sees them through."""

    def __init__(
        self, name: str, setup: DeviceSetup, store: Store, shares: Shares, logs: Path
    ) -> None:
        self.name = name
        self.setup = setup
        self.profile = profile(setup.profile) if setup.profile else UNTIMED
        self.queue = DeviceQueue(POLICIES[setup.policy](shares), shares)
        self.on_begun: Callable[[Task], None] = lambda _: None
        self.on_ended: Callable[[Task], None] = lambda _: None
        self.drained: str | None = None
        """Why no new task is begun, if an operator wants it so."""
        self.trouble: str | None = None
        """Why the worker is not there."""
        self.properties: dict[str, Any] = {}
        self.ready = asyncio.Event()
        self._log = (logs / f"{name}.log").open("ab")
        self.validator = Validator(setup, self._log)
        self._store = store
        self._since = time.time()
        self._estimate = Estimate()
        self._process: Process | None = None
        self._wake = asyncio.Event()
        self._cancelling: set[str] = set()
        self._overdue: dict[str, asyncio.TimerHandle] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._closing = False
        self._faults = 0
        self._faulty_until = 0.0

    @property
    def state(self) -> str:
        """One of offline, idle, busy, error, maintenance, calibration."""
        if self._process is None or time.time() < self._faulty_until:
            return "error" if self.trouble else "offline"
        if self.queue.handed:
            return "busy"
        if self.drained is not None:
            return "maintenance"
        return "calibration" if self._calibration(time.time()) else "idle"

    @property
    def open(self) -> bool:
        """Whether tasks may be begun."""
        return self._process is not None and not self._held_back and self._pause(time.time()) == 0

    def shots(self, wanted: int | None) -> int:
        """How often a task is repeated: as wanted, if the device does that, or as it thinks fit."""
        if wanted is None:
            return self.profile.shots
        most = self.properties.get("most", {}).get("shots", wanted)
        if wanted > most:
            raise PayloadRefused(
                f"{self.name} takes 1 to {most} shots, not {wanted}; ask for fewer"
            )
        return wanted

    def seconds(self, payload_s: float | None, size: int, shots: int) -> float:
        """How long a task should occupy the device, if its payload does not say so itself."""
        if payload_s is not None:
            return payload_s
        if self.setup.profile is None:
            return self._estimate.seconds(size)
        return self.profile.payload_s + self.profile.shot_s * shots * size

    def add(self, task: Task) -> None:
        """Let an accepted task wait for the device."""
        self.queue.add(task)
        self._wake.set()

    def outlook(self, task: Task) -> Outlook:
        """Where a task stands; a pause that is known beforehand is counted in."""
        now = time.time()
        found = self.queue.outlook(task, now)
        late = self._pause(found.start) if task.id in self.queue.waiting else 0.0
        return Outlook(found.position, found.start + late, found.end + late)

    def can_promise(self, task: Task) -> bool:
        """Whether a task that is not added yet could start in time."""
        self.queue.add(task)
        try:
            in_time = self.outlook(task).start <= (task.latest or 0.0)
            return in_time and self.queue.can_promise(task, time.time())
        finally:
            self.queue.withdraw(task)

    def why_waiting(self) -> str:
        """The reason that a task of the device's queue waits."""
        if self._process is None or time.time() < self._faulty_until:
            return "down"
        if self.drained is not None:
            return "maintenance"
        return "calibration" if self._calibration(time.time()) else "queue"

    def drain(self, reason: str | None) -> None:
        """Begin no new task, or go on with them."""
        self.drained = reason
        self._wake.set()

    def cancel(self, task: Task) -> bool:
        """End a task that waits; False if it is on the device, which is asked to stop."""
        if task.id in self.queue.waiting:
            self.queue.withdraw(task)
            return True
        if task.id in self.queue.handed:
            self._cancelling.add(task.id)
            if self._process is not None:
                self._process.send({"cancel": _ticket(task)})
        return False

    async def run(self) -> None:
        """Keep a worker alive, and tasks going to it."""
        pause = PAUSE_FIRST
        while True:
            began = time.monotonic()
            try:
                await self._employ()
            except WorkerLost as error:
                self.trouble = str(error)
                log.warning("device stopped", extra={"device": self.name, "why": self.trouble})
            finally:
                self.ready.set()
                await self._take_back()
            pause = PAUSE_FIRST if time.monotonic() - began > STEADY else min(2 * pause, PAUSE_MOST)
            await asyncio.sleep(pause)

    async def close(self, grace: float) -> None:
        """Begin nothing more, and let what is on the device end if it does so in time."""
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.queue.handed or self._errands:
                    await asyncio.sleep(0.01)
        await self.validator.close()

    async def _employ(self) -> None:
        """One worker, from its start to its end."""
        setup = self.setup
        process = await Process.start(setup.kind, setup.options, setup.python, self._log)
        self.properties, self._process, self.trouble = process.properties, process, None
        self.ready.set()
        log.info("device ready", extra={"device": self.name, "worker": process.pid})
        if self.properties["formats"] != ["burst"]:
            self._start(self.validator.warm_up())
        dispatcher = asyncio.create_task(self._dispatch())
        try:
            async for header, body in process.replies():
                self._hear(header, body)
        finally:
            self._process = None
            dispatcher.cancel()
            await asyncio.wait({dispatcher})
            await process.end()
        raise WorkerLost("the device's process ended by itself; it is started again")

    async def _dispatch(self) -> None:
        """Hand over what there is room for, then sleep until there may be more to do."""
        while True:
            self._wake.clear()
            while tasks := self._batch():
                await self._hand_over(tasks)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rest()):
                    await self._wake.wait()

    def _batch(self) -> list[Task]:
        """The next tasks, as long as the worker should run out of them soon."""
        batch: list[Task] = []
        while self.open and self.queue.waiting and self._room(time.time()):
            batch.append(self.queue.hand_over(time.time()))
        return batch

    def _room(self, now: float) -> bool:
        return self.queue.load(now) <= AHEAD and len(self.queue.handed) < MOST_AHEAD

    def _rest(self) -> float | None:
        """How long nothing can be handed over, unless somebody wakes us."""
        full = len(self.queue.handed) >= MOST_AHEAD
        if not self.queue.waiting or self._held_back or full:
            return None
        now = time.time()
        return max(0.001, self.queue.load(now) - AHEAD, self._pause(now))

    async def _hand_over(self, tasks: list[Task]) -> None:
        now = time.time()
        for task in tasks:
            task.attempts += 1
        payloads = await self._surely(records.hand_over(tasks, now))
        for task, payload in zip(tasks, payloads, strict=True):
            task.state, task.started = State.RUNNING, now
            if self._process is not None and task.id in self.queue.handed:
                self._process.send(self._order(task), payload)
            if task.id in self._cancelling and self._process is not None:
                self._process.send({"cancel": _ticket(task)})

    def _order(self, task: Task) -> Header:
        """What the worker is told; only an emulated device lets the time of its profile pass."""
        timed = self.setup.profile is not None or task.format == "burst"
        words = {"ticket": _ticket(task), "format": task.format, "shots": task.shots}
        return words | {"seed": task.seed, "seconds": task.seconds if timed else 0.0}

    def _hear(self, header: Header, body: bytes) -> None:
        """A task was begun, or is over. Whoever was handed over before may not answer any more."""
        begun = "ticket" not in header
        ticket: str = header["began"] if begun else header["ticket"]
        task = self.queue.handed.get(ticket.partition(":")[0])
        if task is None or _ticket(task) != ticket:
            return
        if begun:
            self._begin(task, header["at"])
        else:
            self._end(task, header, body)

    def _begin(self, task: Task, at: float) -> None:
        self.queue.begin(task, at)
        task.started = at
        timer = asyncio.get_running_loop().call_later(self.setup.limit, self._stop, task)
        self._overdue[task.id] = timer
        self.on_begun(task)

    def _end(self, task: Task, header: Header, body: bytes) -> None:
        self.queue.take_back(task, header["seconds"], time.time())
        self._wake.set()
        if timer := self._overdue.pop(task.id, None):
            timer.cancel()
        if "fault" in header:
            self._start(self._pause_for_fault(task, header["fault"]))
            return
        self._cancelling.discard(task.id)
        self._faults = 0
        answer = Encoded(header["format"], body) if "format" in header else None
        if answer and task.format != "burst":
            self._estimate.learn(task.size, header["seconds"])
        state = State.DONE if answer else State.CANCELLED if "cancelled" in header else State.FAILED
        error = header.get("refused") or header.get("error")
        self._start(self.finish(task, state, header["seconds"], error, answer))

    async def _pause_for_fault(self, task: Task, why: str) -> None:
        """The device itself failed on a task: give it a rest, then run the task again."""
        self._faults += 1
        rest = min(2.0 ** (self._faults - 1), PAUSE_MOST)
        self.trouble, self._faulty_until = why, time.time() + rest
        log.warning("device failed", extra={"device": self.name, "why": why, "rest": rest})
        if task.attempts > self.setup.retries:
            task.error = why
        await self.recover([task])

    def _stop(self, task: Task) -> None:
        """A task takes too long: its worker is ended, and it is not run again."""
        if task.id in self.queue.handed and self._process is not None:
            task.error = f"it occupied the device for more than {self.setup.limit:g} s"
            self._start(self._process.end())

    async def finish(
        self,
        task: Task,
        state: State,
        used: float = 0.0,
        error: str | None = None,
        answer: Encoded | None = None,
    ) -> None:
        """Note how a task ended, then let everybody know."""
        ending = Ending(state, time.time(), used, error)
        if await self._surely(records.finish(task, ending, answer)):
            task.end(ending, answer)
            self.on_ended(task)

    async def _take_back(self) -> None:
        """The worker is gone: what it had is run again, or has failed too often."""
        tasks = list(self.queue.handed.values())
        for timer in self._overdue.values():
            timer.cancel()
        self._overdue.clear()
        for task in tasks:
            self.queue.take_back(task, 0.0, time.time())
        await self.recover(tasks)

    async def recover(self, tasks: list[Task]) -> None:
        """Tasks were on the device when it, or the service, died."""
        again: list[Task] = []
        for task in tasks:
            if task.id in self._cancelling:
                self._cancelling.discard(task.id)
                await self.finish(task, State.CANCELLED)
            elif task.error or task.attempts > self.setup.retries:
                why = task.error or f"it was on the device {task.attempts} times when that stopped"
                await self.finish(task, State.FAILED, error=why)
            else:
                again.append(task)
        await self._surely(records.hand_back(again))
        for task in again:
            task.state, task.started = State.QUEUED, None
            self.add(task)

    async def _surely(self, action: Callable[..., Any]) -> Any:
        """Write, and if the disk is full or locked, try until it is not: nothing may be lost."""
        while True:
            try:
                return await self._store.write(action)
            except StoreFailed as error:
                log.warning("store failed", extra={"device": self.name, "why": str(error)})
                await asyncio.sleep(1.0)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        errand = asyncio.create_task(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    @property
    def _held_back(self) -> bool:
        """Whether nothing is begun until somebody says so."""
        return self._closing or self.drained is not None

    def _pause(self, at: float) -> float:
        """How long, from a moment on, nothing is begun: it rests after a fault, or calibrates."""
        return max(0.0, self._faulty_until - at, self._calibration(at))

    def _calibration(self, at: float) -> float:
        """How long a calibration still lasts at a moment; the first one ends the first period."""
        plan = self.setup.calibration
        if plan is None:
            return 0.0
        left = plan.every - (at - self._since) % plan.every
        return left if left <= plan.lasts else 0.0


def _ticket(task: Task) -> str:
    """What an answer is known by: of which attempt it is counts."""
    return f"{task.id}:{task.attempts}"
