"""The service: takes tasks from the doors, keeps them, and brings each to its machine.

Everything a door may do goes through here, so that no door can forget who may see what.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qtide.errors import PhaseError, QtideError
from qtide.payloads.encoded import Encoded
from qtide.service import records, tokens
from qtide.service.configuration import Configuration
from qtide.service.device.device import ServedDevice
from qtide.service.drains import Drains
from qtide.service.metrics import Metrics
from qtide.service.policies import Shares
from qtide.service.policies.fair import Owner
from qtide.service.quotas import Meter
from qtide.service.records import Draft
from qtide.service.refusals import CannotPromise, Conflict, NotFound
from qtide.service.store import Store
from qtide.service.task import Caller, State, Task, release

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that tasks on a device have to end in when the service is stopped."""
HOUSEKEEPING = 60.0
"""Seconds between two rounds of purging and of looking at quotas."""


@dataclass(frozen=True)
class Submission:
    """What somebody asks for."""

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


class Service:
    """All devices and all tasks."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        folder = configuration.folder
        (folder / "log").mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.store = Store(folder / "store.sqlite")
        self.metrics = Metrics()
        fair = configuration.fair
        self._shares = Shares(fair.shares, fair.half_life)
        self._meter = Meter(configuration.quotas)
        self._tasks: dict[str, Task] = {}
        self._over_quota: dict[str, Task] = {}
        self._promising = asyncio.Lock()
        self._stopping = False
        self._waiters: set[asyncio.Future[None]] = set()
        self._errands: list[asyncio.Task[Any]] = []
        self.machines = {
            name: ServedDevice(name, setup, self.store, self._shares, folder / "log")
            for name, setup in configuration.devices.items()
        }
        self.drains = Drains(self.store, self.machines)

    async def open(self) -> None:
        """Take up what an earlier service left, and start the devices."""
        self._remember()
        self.drains.restore()
        for machine in self.machines.values():
            machine.on_begun, machine.on_ended = self.metrics.began, self._ended
        await self._take_up(self.store.read(records.live))
        self._errands = [asyncio.create_task(each.run()) for each in self.machines.values()]
        self._errands.append(asyncio.create_task(self._keep_house()))

    async def close(self) -> None:
        """Stop the devices; what was accepted stays for the next time."""
        await asyncio.gather(*(each.close(GRACE) for each in self.machines.values()))
        for errand in self._errands:
            errand.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)
        self.store.close()

    async def submit(self, caller: Caller, wish: Submission) -> Task:
        """Accept a task: from here on it is not lost. The same key gives the same task."""
        try:
            return await self._submit(caller, wish)
        except (QtideError, PhaseError, sqlite3.IntegrityError):
            # a key that was used before is refused by the store, or by a limit before that
            known = self._known(caller, wish)
            if known is None:
                raise
            return known

    def machine(self, name: str) -> ServedDevice:
        """The device of that name."""
        try:
            return self.machines[name]
        except KeyError:
            known = ", ".join(sorted(self.machines))
            raise NotFound(f"there is no device {name!r}; there are: {known}") from None

    def names_with_door(self, door: str) -> list[str]:
        """The devices that are shown at a door and take its circuits."""
        return [
            name
            for name, machine in self.machines.items()
            if door in machine.setup.doors and door in machine.properties.get("formats", ())
        ]

    def task(self, caller: Caller, id: str) -> Task:  # noqa: A002 - what users call it
        """A task of the caller's; operators see all, but never payloads or answers."""
        task: Task | None = self._tasks.get(id) or self.store.read(records.find(id))
        if task is None or not (caller.operator or task.caller.user == caller.user):
            raise NotFound(f"you have no task {id!r}")
        return task

    def tasks(
        self, caller: Caller, states: Iterable[str], limit: int, before: int | None, *, all_: bool
    ) -> list[tuple[int, Task]]:
        """The caller's tasks, newest first; for operators, everybody's."""
        user = None if all_ and caller.operator else caller.user
        found = self.store.read(records.of_user(user, list(states), limit, before))
        return [(number, self._tasks.get(task.id, task)) for number, task in found]

    def answer(self, caller: Caller, task: Task) -> Encoded:
        """The answer to one's own task that is done."""
        if task.answer is not None and task.caller.user == caller.user:
            return task.answer
        row = self._row(caller, task, "answer")
        return Encoded(row["answer_format"], row["answer"])

    def payload(self, caller: Caller, task: Task) -> Encoded:
        """What one's own task was made of, as it is stored."""
        return Encoded(task.format, self._row(caller, task, "payload")["payload"])

    def request(self, caller: Caller, task: Task) -> bytes:
        """The request of one's own task, in the words of the door it came by."""
        request: bytes | None = self._row(caller, task, "request")["request"]
        if request is None:
            raise NotFound(f"the task {task.id!r} came by another door")
        return request

    async def wait(self, task: Task, seconds: float) -> None:
        """Return when a task is over, when the time is, or when the service is to stop."""
        if seconds <= 0 or task.over or self._stopping:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = loop.call_later(seconds, release, waiter)
        task.waiters.append(waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            task.waiters.remove(waiter)
            self._waiters.discard(waiter)

    def let_go(self) -> None:
        """Hold no answer back any more: the service is to stop."""
        self._stopping = True
        for waiter in self._waiters:
            release(waiter)

    async def cancel(self, caller: Caller, id: str) -> Task:  # noqa: A002 - as above
        """End a task: at once if it waits, as soon as the device lets go of it if not."""
        task = self.task(caller, id)
        if task.state.over:
            return task
        machine = self.machine(task.device)
        if self._over_quota.pop(id, None) or machine.cancel(task):
            await machine.finish(task, State.CANCELLED)
        return task

    async def forget(self, caller: Caller, id: str) -> None:  # noqa: A002 - as above
        """End a task, and forget what it was and what it gave; its account stays."""
        task = await self.cancel(caller, id)
        if task.caller.user == caller.user and task.state.over:
            await self.store.write(records.forget(id))

    def outlook(self, task: Task) -> dict[str, Any]:
        """Position, expected start and end, and why the task waits."""
        if task.state.over:
            return {}
        if task.id in self._over_quota:
            start = self._meter.next_day(time.time())
            return {"reason": "quota", "expected_start": start, "expected_end": start}
        machine = self.machine(task.device)
        if task.id not in machine.queue.waiting and task.id not in machine.queue.handed:
            return {"reason": "queue"}
        position, start, end = machine.outlook(task)
        words = {"position": position, "expected_start": start, "expected_end": end}
        return words | {"reason": None if task.state is State.RUNNING else machine.why_waiting()}

    async def _submit(self, caller: Caller, wish: Submission) -> Task:
        machine = self.machine(wish.device)
        checked = await machine.validator.check(wish.payload)
        shots = machine.shots(wish.shots)
        task = Task(
            id=str(uuid.uuid4()),
            caller=caller,
            device=machine.name,
            name=wish.name,
            format=checked.encoded.format,
            shots=shots,
            seed=secrets.randbits(31) if wish.seed is None else wish.seed,
            size=checked.size,
            seconds=machine.seconds(checked.seconds, checked.size, shots),
            submitted=time.time(),
            priority=wish.priority,
            max_wait=wish.max_wait,
        )
        draft = Draft(checked.encoded, wish.digest, wish.key, wish.request)
        self._meter.accept(caller)
        try:
            return await self._accept(machine, task, draft)
        except BaseException:
            self._meter.count(caller, -1)
            raise

    def _known(self, caller: Caller, wish: Submission) -> Task | None:
        """The task that was handed in before under the same key."""
        if wish.key is None:
            return None
        row = self.store.read(records.find_by_key(caller.user, wish.key))
        if row is None:
            return None
        if row["digest"] != wish.digest:
            raise Conflict(f"the key {wish.key!r} was used before, for another task; choose a new")
        return self.task(caller, row["id"])

    def _row(self, caller: Caller, task: Task, column: str) -> Any:
        if task.caller.user != caller.user:
            raise NotFound(f"the task {task.id!r} is somebody else's; operators see no payloads")
        row = self.store.read(records.find_blob(task.id, column))
        if row["answer_format"] == "purged":
            raise NotFound(f"payload and answer of the task {task.id!r} were purged after a while")
        return row

    async def _accept(self, machine: ServedDevice, task: Task, draft: Draft) -> Task:
        if task.max_wait is None:
            await self._keep(machine, task, draft)
            return task
        async with self._promising:  # two promises at once could break each other
            self._refuse_if_late(machine, task)
            await self._keep(machine, task, draft)
        return task

    async def _keep(self, machine: ServedDevice, task: Task, draft: Draft) -> None:
        fits = self._meter.fits(task.caller, task.seconds, task.submitted)
        if fits:
            self._meter.hold(task, task.submitted)
        try:
            await self.store.write(records.insert(task, draft))
        except BaseException:
            if fits:
                self._meter.settle(task, task.submitted)
            raise
        self._tasks[task.id] = task
        if fits:
            machine.add(task)
        else:
            self._over_quota[task.id] = task
        self.metrics.accepted(task)

    def _refuse_if_late(self, machine: ServedDevice, task: Task) -> None:
        assert task.max_wait is not None
        if not self._meter.fits(task.caller, task.seconds, task.submitted):
            wait = self._meter.next_day(task.submitted) - task.submitted
            reason, start = "quota", task.submitted + wait
        elif (reason := machine.why_waiting()) != "queue" and reason != "calibration":
            start = None
        elif not machine.can_promise(task):
            machine.queue.add(task)
            start = machine.outlook(task).start
            machine.queue.withdraw(task)
        else:
            return
        when = "nobody knows when" if start is None else f"in about {start - task.submitted:.1f} s"
        raise CannotPromise(
            reason,
            start,
            f"the task may wait {task.max_wait:g} s, but could start {when} ({reason}); "
            "allow it more, or hand it in later",
        )

    def _ended(self, task: Task) -> None:
        now = time.time()
        self._meter.settle(task, now)
        self._meter.count(task.caller, -1)
        self._tasks.pop(task.id, None)
        self.metrics.ended(task)
        log.info("task ended", extra=_for_log(task))
        self._admit_over_quota()

    def _admit_over_quota(self) -> None:
        """Somebody's quota may have room again."""
        now = time.time()
        for task in list(self._over_quota.values()):
            if self._meter.fits(task.caller, task.seconds, now):
                del self._over_quota[task.id]
                self._meter.hold(task, now)
                self.machine(task.device).add(task)

    def _remember(self) -> None:
        """What was used lately."""
        now = time.time()
        since = now - 10 * self.configuration.fair.half_life
        words = "SELECT user, account, used, ended FROM tasks WHERE ended > ? ORDER BY ended"
        for row in self.store.read(lambda db: db.execute(words, (since,)).fetchall()):
            caller = Caller(row["user"], row["account"])
            self._shares.charge(Owner.of(caller), row["used"], row["ended"])
            if row["ended"] >= self._meter.next_day(now) - 86_400:
                self._meter.note(caller, row["used"], now)

    async def _take_up(self, tasks: list[Task]) -> None:
        for task in tasks:
            self._meter.count(task.caller, 1)
            self._tasks[task.id] = task
            if task.device not in self.machines:
                log.warning("task of a device that is gone", extra=_for_log(task))
                continue
            machine = self.machines[task.device]
            if task.state is State.RUNNING:
                self._meter.hold(task, time.time())
                await machine.recover([task])
            elif self._meter.fits(task.caller, task.seconds, time.time()):
                self._meter.hold(task, time.time())
                machine.add(task)
            else:
                self._over_quota[task.id] = task

    async def _keep_house(self) -> None:
        while True:
            self._admit_over_quota()
            await self.store.write(tokens.sweep)
            before = time.time() - 86_400 * self.configuration.retention_days
            while purged := await self.store.write(records.purge(before)):
                log.info("purged", extra={"tasks": purged})
            await asyncio.sleep(HOUSEKEEPING)


def _for_log(task: Task) -> dict[str, Any]:
    """What a log may say of a task: who and how long, never what."""
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
