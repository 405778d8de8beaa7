"""The service that every API calls, and the only place that decides who may do what."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from qtide.core.errors import PhaseError, QtideError
from qtide.core.processes import making
from qtide.core.world.real import RealWorld
from qtide.core.world.world import BackgroundTasks, Future, World, release
from qtide.service import queries, records, tokens
from qtide.service.allocations import AllocationBook, as_quota
from qtide.service.audit import AuditTrail
from qtide.service.backlog import Backlog, for_log
from qtide.service.bulk import Bulk
from qtide.service.configuration import DAY, Configuration, DeviceSetup
from qtide.service.device.fleet import Fleet
from qtide.service.device.served_device import ServedDevice, find_device
from qtide.service.device.validator import WorkerProcesses, Workers
from qtide.service.explanation import explain
from qtide.service.intake import Intake, Submission
from qtide.service.limits import FairSemaphore, in_slices
from qtide.service.monitoring import ServiceMetrics
from qtide.service.operations import Operations
from qtide.service.policies.policy import Shares
from qtide.service.quotas import QuotaMeter, Storage, remember
from qtide.service.records import Endings
from qtide.service.routing import Router
from qtide.service.store import Store, open_store
from qtide.service.task import (
    ANY,
    CalibrationSet,
    Caller,
    Conflict,
    NotFound,
    ServiceTask,
    TaskStanding,
    TaskState,
    check_owns,
    owns,
    sees,
    whose,
)
from qtide.service.tokens import Register

log = logging.getLogger(__name__)

GRACE = 5.0
"""Seconds that tasks on a device have to end when the service stops, or they are deleted."""
HOUSEKEEPING = 60.0
"""Seconds between two rounds of purging and checking quotas."""
QUOTA_SOON = 60.0
"""Seconds before a new day from which on a job without QPU time may start nevertheless."""
LISTS = 4
"""Long lists and sums over the store that the service works on at the same time."""


class Service:
    """All devices and tasks, on the clock of a world."""

    def __init__(
        self,
        configuration: Configuration,
        world: World,
        store: Store,
        workers: Workers,
        chance: random.Random | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        self.configuration = configuration
        self.store = store
        self.audit = audit or AuditTrail(None)
        self.metrics = ServiceMetrics()
        self.register = Register(store, tokens.with_members(configuration.operators), self.audit)
        self.bulk = Bulk(world)
        self.lists = FairSemaphore(world, "lists", each=1, total=LISTS)
        """Limits the long lists and sums worked on at the same time: one per user, so that nobody's
        queries keep the thread that reads the store from others."""
        self.spools = FairSemaphore(world, "long answers", each=1)
        """Limits the long answers sent from disk at the same time: one per user."""
        self._copies = FairSemaphore(world, "payloads to run again", each=1)
        """Limits the payloads that are read whole to run again: one per user."""
        self.contents = records.TaskContents(store)
        self.storage = Storage(world, store, configuration.limits, configuration.folder)
        self.world = self._world = world
        fair = configuration.fair
        self.shares = Shares(fair.shares, fair.half_life, fair.head_start)
        self._meter = QuotaMeter(configuration.quotas)
        self._endings = Endings(world, store)
        self._stopping = False
        self._waiters: set[Future[None]] = set()
        self._background = BackgroundTasks(world)
        self.on_reconfigured: list[Callable[[Configuration], None]] = []
        """Called with each new configuration."""
        self.on_stopping: list[Callable[[], None]] = []
        """Called when the service begins to stop, to end what would last longer."""
        self.slurm_calls: Callable[[], int] = lambda: 0
        """Returns how often Slurm was asked something, if Slurm admits jobs."""
        self._workers = workers
        self._fleet = Fleet(world, self._device, configuration.devices)
        self.devices = self._fleet.devices
        self.allocations = AllocationBook(world, store)
        self.operations = Operations(world, store, self.devices, self.allocations, self.audit)
        self._backlog = Backlog(world, self.devices, self._meter, self.allocations)
        self._intake = Intake(
            world,
            store,
            self._meter,
            self.allocations,
            self._backlog,
            chance or random.SystemRandom(),
            configuration.priorities,
        )
        self._router = Router(
            world, store, self.devices, self._backlog, self._intake, self._background
        )

    @classmethod
    def on_this_host(cls, configuration: Configuration) -> Service:
        """Make a service in real time, with its state in a folder and a process per device."""
        folder = configuration.folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        store = open_store(folder, configuration.store)
        audit = AuditTrail(folder / "audit")
        return cls(configuration, RealWorld(), store, WorkerProcesses(folder), audit=audit)

    async def open(self) -> None:
        """Take up the tasks of an earlier service, and start the devices."""
        half_life = self.configuration.fair.half_life
        remember(self.store, self.shares, self._meter, half_life, self._world.now())
        self.allocations.restore()
        self.storage.remember()
        self.store.post(tokens.record_operators(self.register.operators))
        self.operations.restore()
        self._endings.on_ended = self._ended
        self._endings.on_written = self._look_again
        self._intake.on_accepted = self.metrics.accepted
        self._fleet.on_new = self._take_in
        await self.book_left_behind(self._endings.write_with_retry)
        with making(self.store.read(queries.count_live)):
            await self._backlog.take_up(self.store.read(queries.live))
        for task in self._backlog.routed():
            self._router.watch(task)
        self._fleet.start(self._background)
        self._background.repeat("housekeeping", self._housekeeping, HOUSEKEEPING)

    async def book_left_behind(self, write: Callable[[Any], Awaitable[Any]]) -> None:
        """Book to the site what an earlier service on this host did not live to record."""
        for device, occupations in (await self._workers.left_behind()).items():
            await write(records.book_rest(device, occupations, "the service was killed"))

    async def run_dry(self) -> None:
        """Start nothing more on the devices, and wait for what they do; keep accepting tasks."""
        await self._world.all_of([each.run_dry(GRACE) for each in self.devices.values()])

    async def close(self) -> None:
        """Stop the devices; accepted tasks stay in the store for the next start."""
        await self._world.all_of([each.close(GRACE) for each in self.devices.values()])
        await self._background.cancel()
        await self.bulk.close()
        self.store.close()

    async def abandon(self) -> None:
        """Stop at once, like a killed process; for simulations."""
        await self._background.cancel()

    @property
    def at_rest(self) -> bool:
        """Whether no task waits, runs, or holds a reservation."""
        rest = not self._backlog and self._meter.at_rest
        return rest and all(each.dispatcher.at_rest for each in self.devices.values())

    async def submit(self, caller: Caller, submission: Submission) -> ServiceTask:
        """Accept a task durably; submitting the same key again returns the same task."""
        try:
            device = self._named(caller, submission)
            await self.storage.keep_pace(caller.user, submission.size)
            with self.storage.reserving(caller.user, submission.size):
                if device is None:
                    return await self._router.submit(caller, submission)
                return await self._intake.accept(caller, device, submission)
        except (QtideError, PhaseError):
            # the store rejects a key that is already in use, unless a limit refused the task first
            known = self._known(caller, submission)
            if known is None:
                raise
            return known

    async def retry(self, caller: Caller, id: str, key: str | None = None) -> ServiceTask:  # noqa: A002 - the name users know
        """Submit a task that has ended once more; its wishes for a promised start do not apply."""
        task = self.task(caller, id)
        if not task.over or task.idle is not None:
            raise Conflict(f"the task {task.id} is {task.state}; only one that ended runs again")
        async with self._copies.turn(caller.user):  # a small request for up to 16 MB of memory
            return await self.submit(
                caller, Submission.again(task, await self.contents.payload(caller, task), key)
            )

    async def estimate(self, caller: Caller, submission: Submission) -> dict[str, Any]:
        """What a task would take, and when it would start, without submitting it."""
        device = self._named(caller, submission)
        if device is None:
            return await self._router.estimate(caller, submission)
        return await self._intake.estimate(caller, device, submission)

    def why(self, caller: Caller, id: str) -> dict[str, Any]:  # noqa: A002 - the name users know
        """What stands before a task, which rule put it there, and what would change it."""
        task = self.task(caller, id)
        return explain(task, self.standing(task), self.devices.get(task.device))

    def now(self) -> float:
        """The current time, on the clock of every time that the service reports."""
        return self._world.now()

    def device(
        self, name: str, caller: Caller | None = None, api: str | None = None
    ) -> ServedDevice:
        """Find the device of that name, if the caller may use it and the API offers it."""
        found = self.devices.values() if api is None else self.offered(api)
        if caller is not None:
            found = [each for each in found if each.admits(caller)]
        return find_device(found, name)

    def offered(self, api: str, caller: Caller | None = None) -> list[ServedDevice]:
        """The devices that an API offers, of those that the caller may use."""
        found = [each for each in self.devices.values() if each.offered_by(api)]
        return [each for each in found if caller is None or each.admits(caller)]

    def names_taking(self, api: str, caller: Caller) -> list[str]:
        """Names of the devices that an API shows to a caller and that accept the API's format."""
        offered = self.offered(api, caller)
        return [each.name for each in offered if api in each.properties.get("formats", ())]

    @property
    def slots(self) -> int:
        """How many jobs may hold a virtual QPU at once."""
        return sum(each.setup.slots for each in self.devices.values())

    async def usage(
        self,
        caller: Caller,
        by: Sequence[str],
        since: float | None = None,
        until: float | None = None,
        *,
        everybody: bool = False,
    ) -> list[str]:
        """Device usage of the caller, or of all with `everybody` (operators only), as JSON rows."""
        user = whose(caller, everybody=everybody)
        return await self._listed(caller, queries.usage(by, user, since, until, self._world.now()))

    async def charges(
        self, caller: Caller, since: float, until: float, after: int = 0, *, everybody: bool = False
    ) -> list[str]:
        """What each task that ended in a period was charged; some of them, after a number."""
        user = whose(caller, everybody=everybody)
        return await self._listed(caller, queries.charges(user, since, until, after))

    async def _listed(self, caller: Caller, query: Any) -> list[str]:
        """The rows of a query that may be long, in JSON; one at a time for each user."""
        async with self.lists.turn(caller.user):
            return await in_slices(self._world, await self.store.look(query), json.dumps)

    def quotas_left(self, caller: Caller) -> list[dict[str, Any]]:
        """What is left of the caller's and the account's quotas and allocations, and until when."""
        now = self._world.now()
        until = {"until": self._meter.next_day(now)}
        quotas = [each.as_dict() | until for each in self._meter.left(caller, now)]
        return quotas + [as_quota(each) for each in self.allocations.left(caller)]

    def over_quota(self, task: ServiceTask) -> bool:
        """Whether a task waits for room in a quota."""
        return self._backlog.over_quota(task)

    def why_nothing_left(self, caller: Caller) -> str | None:
        """Why the caller can use no QPU time for a while, as a sentence; None if it can."""
        now = self._world.now()
        until = self._meter.next_day(now)
        for each in self._meter.left(caller, now):
            if each.used_up and until - now > QUOTA_SOON:
                when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until))
                return (
                    f"the {each.subject.kind} {each.subject.name} has used its "
                    f"{each.subject.quota.qpu_seconds:g} QPU seconds of today; submit the job "
                    f"again with --begin, after {when}, or ask the operator"
                )
        open_to = [name for name, each in self.devices.items() if each.admits(caller)]
        return self.allocations.why_nothing_left(caller, open_to)

    async def metrics_text(self, *, accounts: bool) -> bytes:
        """All metrics, in Prometheus's format."""
        self.metrics.look_at(self.devices.values(), self._backlog.blocked_by_device)
        return await self._world.offload(partial(self.metrics.text, accounts=accounts))

    def task(self, caller: Caller, id: str) -> ServiceTask:  # noqa: A002 - the name users know
        """Find a task of the caller by its id or a prefix; operators find every task.

        Only the owner sees its payload and answer.
        """
        whole = queries.whole_id(self.store, caller, id)
        task: ServiceTask | None = self._backlog.find(whole) or self.store.read(queries.find(whole))
        if task is None or not sees(caller, task):
            raise NotFound(f"you have no task {id!r}")
        return task

    def task_by_key(self, caller: Caller, key: str) -> ServiceTask | None:
        """Find the task that the caller submitted with a key."""
        row = self.store.read(queries.find_by_key(caller.user, key))
        return None if row is None else self.task(caller, row["id"])

    def calibration(self, caller: Caller, id: str) -> tuple[str, CalibrationSet]:  # noqa: A002 - as above
        """Find a calibration set and its device, if the caller may use the device."""
        found: tuple[str, CalibrationSet] | None = self.store.read(queries.find_calibration(id))
        device = found and self.devices.get(found[0])
        if found is None or device is None or not device.admits(caller):
            raise NotFound(f"there is no calibration set {id!r}")
        return found

    async def tasks(
        self,
        caller: Caller,
        states: Sequence[str] = (),
        limit: int = 100,
        before: int | None = None,
        *,
        everybody: bool = False,
    ) -> list[tuple[int, ServiceTask]]:
        """The caller's tasks, or all users' with `everybody` (operators only), newest first."""
        user = whose(caller, everybody=everybody)
        found = await self.store.look(queries.of_user(user, states, limit, before))
        return [(number, self._backlog.find(task.id) or task) for number, task in found]

    async def wait(self, task: ServiceTask, seconds: float) -> None:
        """Return when the task is over, the time is up, or the service stops."""
        if seconds <= 0 or task.over or self._stopping:
            return
        waiter: Future[None] = self._world.future()
        alarm = self._world.alarm(seconds, lambda: release(waiter))
        task.waiters.append(waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            alarm.cancel()
            task.waiters.remove(waiter)
            self._waiters.discard(waiter)

    def let_go(self) -> None:
        """Release all waiting requests, because the service stops."""
        self._stopping = True
        for waiter in self._waiters:
            release(waiter)
        for stop in self.on_stopping:
            stop()

    async def cancel(self, caller: Caller, id: str) -> ServiceTask:  # noqa: A002 - as above
        """Cancel a task: at once if it waits, else as soon as the device releases it."""
        task = self.task(caller, id)
        if not task.over and not owns(caller, task):
            owner = task.caller.user
            self.audit.record("task cancelled", caller.user, "by an operator", task=id, owner=owner)
        if not task.over and self._backlog.cancel(task):
            await self._endings.finish(task, TaskState.CANCELLED, task.used)
        return task

    async def forget(self, caller: Caller, id: str) -> None:  # noqa: A002 - as above
        """Cancel a task and delete its payload and answer; keep its usage record. For its owner."""
        check_owns(caller, self.task(caller, id))
        task = await self.cancel(caller, id)
        await self.wait(task, GRACE)
        if not task.over:
            raise Conflict(
                f"the task {task.id} is cancelled, but the device has not released it yet; "
                "delete it once it has ended"
            )
        await self.storage.forget(task.id)

    def line(self, device: ServedDevice) -> list[ServiceTask]:
        """All unfinished tasks of a device; those over a quota come last."""
        return [*device.line, *self._backlog.held_back(device.name)]

    def standing(self, task: ServiceTask) -> TaskStanding | None:
        """Why a task waits and when it should start and end; None once it is over."""
        return None if task.over else self._backlog.standing(task)

    def reconfigure(self, new: Configuration) -> None:
        """Switch to another configuration, except for settings that need a restart."""
        old, self.configuration = self.configuration, new
        fair = new.fair
        self.register.operators = tokens.with_members(new.operators)
        self.store.post(tokens.record_operators(self.register.operators))
        self._intake.priorities = new.priorities
        self.storage.adopt(new.limits)
        self._meter.adopt(new.quotas)
        self.shares.adopt(fair.shares, fair.half_life, fair.head_start)
        for device in self.devices.values():
            device.validator.adopt(new.limits)
            if fair != old.fair:
                device.reorder()
        for adopt in self.on_reconfigured:
            adopt(new)
        self._fleet.change(new.devices)
        self._backlog.admit()

    def _device(self, name: str, setup: DeviceSetup) -> ServedDevice:
        limits = self.configuration.limits
        made = ServedDevice(
            name, setup, self._world, self._endings, self.shares, self._workers, limits
        )

        def begun(task: ServiceTask) -> None:
            self.metrics.began(task)
            made.starts.started(task)

        made.dispatcher.on_begun = begun
        made.dispatcher.why_full = lambda task: self.storage.why_full(task.caller.user)
        made.dispatcher.recovery.on_back = self.metrics.retried
        made.on_lost = self.metrics.restarted
        return made

    def _take_in(self, device: ServedDevice) -> None:
        """Hand the tasks waiting for a device to it, since it came while the service runs."""
        self.operations.restore()
        self._backlog.take_over(device)

    def _named(self, caller: Caller, submission: Submission) -> ServedDevice | None:
        """The device that a submission names; None if it names a class of them."""
        if submission.device.startswith(ANY):
            return None
        return self.device(submission.device, caller, submission.api)

    def _known(self, caller: Caller, submission: Submission) -> ServiceTask | None:
        """The task submitted earlier with the same key, if any."""
        if submission.key is None:
            return None
        row = self.store.read(queries.find_by_key(caller.user, submission.key))
        if row is None:
            return None
        if row["digest"] != submission.digest:
            key = submission.key
            raise Conflict(f"the key {key!r} was used before, for another task; choose a new one")
        return self.task(caller, row["id"])

    def _ended(self, task: ServiceTask) -> None:
        self._backlog.remove(task)
        self.storage.answered(task)
        self.metrics.ended(task)
        log.info("task ended", extra=for_log(task))

    def _look_again(self) -> None:
        for device in self.devices.values():
            device.dispatcher.look_again()

    async def _housekeeping(self) -> None:
        self._backlog.admit()
        now = self._world.now()
        if any(each.startswith("@") for each in self.configuration.operators):
            # members of groups come and go; asking a directory may take long
            operators = self.configuration.operators
            self.register.operators = await self._world.offload(tokens.with_members, operators)
        await self.store.write(tokens.sweep(now))
        before = now - DAY * self.configuration.retention_days
        while purged := await self.storage.purge(before):
            log.info("purged", extra={"tasks": purged})
