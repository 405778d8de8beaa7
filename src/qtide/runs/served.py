"""QPUs behind the vQPU service in virtual time, with its queue, policies, promises and limits.

The service is not modelled: it is the real one of `qtide serve` on the virtual clock, with an
in-memory store and simulated devices. Its tasks are bursts, each as long as its payload takes;
computing the payload's answer takes no virtual time.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from qtide.backends.devices.bursts import Bursts
from qtide.backends.devices.device import Device
from qtide.backends.devices.profile import UNTIMED, Profile
from qtide.backends.leases.emulated import offloaded
from qtide.backends.leases.qpu import IdleMeter, MeteredQpu, Payload, Qpu, QpuFailed, QpuTask, check
from qtide.backends.models.failures import Outages, Window
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.payloads.payload import Burst, encode
from qtide.core.errors import UsageError
from qtide.core.forecasts import Outlook
from qtide.core.job import JobContext
from qtide.core.processes import Header
from qtide.core.world.world import Future, World
from qtide.service.configuration import Configuration
from qtide.service.intake import Submission
from qtide.service.policies.policy import POLICIES
from qtide.service.service import Service
from qtide.service.task import Caller, CannotPromise, ServiceTask, TaskState
from qtide.service.virtual_service import (
    Fate,
    SimulatedDevice,
    SimulatedDevices,
    SimulatedOccupation,
    SimulatedStore,
    SimulatedWorker,
)

OPERATOR = Caller("operator", operator=True)
NOWHERE = Path("/nonexistent")
"""Placeholder state path for a service with an in-memory store."""
MOMENT = 1e-6
"""Seconds on a device that are only rounding."""
LONG = 600.0
"""Assumed remaining wait of a payload, in seconds, while its device is unavailable."""


@dataclass
class PromiseCounts:
    """Number of maximum waits requested, promised and kept."""

    asked: int = 0
    made: int = 0
    kept: int = 0


@dataclass(frozen=True)
class Solver:
    """The device that computes answers, and the profile that times them."""

    device: Device
    profile: Profile

    def answer(self, payload: Payload) -> Any:
        """Compute the answer on the device."""
        shots = self.profile.shots if payload.shots is None else payload.shots
        return self.device.solve(payload.content, shots, payload.seed)


class PretendedDevice(SimulatedDevice):
    """A simulated device that times payloads by the site's file and keeps no record of them."""

    def __init__(self, world: World, model: QpuModel) -> None:
        super().__init__(world, lambda header: Fate(share=model.factor(header["seed"])), 0.0)
        self.meter = IdleMeter(world)
        self._outages = 0
        """Number of failures, of the device or the service, that keep it down."""
        self.begun: dict[str, Callable[[], None]] = {}
        """Callbacks for started tasks, by task id."""

    def go_down(self) -> None:
        """Lose the worker with its task; no other starts until as many calls to `come_back`."""
        self._outages += 1
        self.broken = True
        if self.worker is not None:
            self.worker.die()

    def come_back(self) -> None:
        """End an outage."""
        self._outages -= 1
        self.broken = self._outages > 0

    def new_worker(self) -> SimulatedWorker:
        """Create a worker that reports its work to the meter."""
        return PretendedWorker(self)

    def occupy(self, ticket: str, alone: float) -> SimulatedOccupation:
        """Report that a task starts; keep no record, as a year of tasks would fill the memory."""
        self.begun.get(ticket.partition(":")[0], lambda: None)()
        return SimulatedOccupation(ticket, self.world.now(), alone)


class PretendedWorker(SimulatedWorker):
    """Runs tasks and reports its working time to a meter."""

    def __init__(self, device: PretendedDevice) -> None:
        super().__init__(device)
        self._meter = device.meter

    async def perform(self, header: Header, body: bytes) -> None:
        """Run one task."""
        with self._meter.working():
            await super().perform(header, body)


class SharedQpus:
    """A site's vQPU service with all its devices."""

    def __init__(
        self,
        world: World,
        qpu: QpuModel,
        service: ServiceModel,
        vqpus: int,
        solver: Solver = Solver(Bursts(), UNTIMED),  # noqa: B008 - has no state
    ) -> None:
        self.world = world
        self.model = qpu
        self.longest = service.longest
        self.promises = PromiseCounts()
        self._devices = {f"qpu-{n + 1}": PretendedDevice(world, qpu) for n in range(qpu.number)}
        self._maintaining: list[Any] = []
        self._failures = (qpu.failures, service.failures)
        self._up: Future[None] | None = None
        """Done when the service is up again, while it is down."""
        calibration, self._maintenance = _calendars(qpu)
        setup = {
            "kind": "burst",
            "policy": checked_policy(service.policy),
            "slots": vqpus,
            "limit": service.limit,
            "promised": service.promised,
            "calibration": calibration,
        }
        configuration = Configuration.model_validate(
            {
                "state": NOWHERE,
                "devices": dict.fromkeys(self._devices, setup),
                "fair": {"half_life": service.half_life},
                "quotas": {"user": {}},
                "retention_days": 1.0,  # years are simulated
            }
        )
        store = SimulatedStore(world, service.commit)
        self.service = Service(
            configuration, world, store, SimulatedDevices(self._devices), Random(0)
        )
        self.qpus = [
            ServedQpu(self, name, vqpus, each, solver) for name, each in self._devices.items()
        ]

    async def open(self) -> None:
        """Start the service and schedule its maintenance."""
        await self.service.open()
        self._maintaining = [
            self.world.start(self._maintain(name, window))
            for window in self._maintenance
            for name in self._devices
        ]
        of_devices, of_service = self._failures
        if of_devices is not None:
            self._maintaining += [
                self.world.start(self._fail(of_devices.outages(number), [device]))
                for number, device in enumerate(self._devices.values())
            ]
        if of_service is not None:
            devices = list(self._devices.values())
            outages = of_service.outages(0)
            self._maintaining.append(self.world.start(self._fail(outages, devices, service=True)))

    async def close(self) -> None:
        """Stop the service."""
        await self.world.cancel(self._maintaining)
        await self.service.close()

    async def submit(self, caller: Caller, device: str, seconds: float, seed: int) -> ServiceTask:
        """Submit a payload's time as a task; without a promise if the wait cannot be promised.

        While the service is down, clients wait for it.
        """
        if self._up is not None:
            await self.world.settled([self._up])
        content = encode(Burst(seconds))
        seed >>= 1  # the service takes seeds below 2 ** 63
        if self.longest is not None:
            self.promises.asked += 1
            try:
                wish = Submission(device, content, seed=seed, max_wait=self.longest)
                task = await self.service.submit(caller, wish)
            except CannotPromise:
                pass
            else:
                self.promises.made += 1
                return task
        return await self.service.submit(caller, Submission(device, content, seed=seed))

    def settle(self, task: ServiceTask) -> None:
        """Count whether a finished task's promise was kept."""
        if task.latest is not None and task.started is not None:
            self.promises.kept += task.started <= task.latest

    async def _maintain(self, device: str, window: Window) -> None:
        """Drain the device during each maintenance window, as its operator would."""
        begins = window.at
        while True:
            await self.world.sleep(begins - self.world.now())
            await self.service.operations.drain(OPERATOR, device, "maintenance")
            await self.world.sleep(begins + window.lasts - self.world.now())
            now = self.world.now()
            if all(each.end(now) <= now for each in self._maintenance):
                await self.service.operations.resume(OPERATOR, device)
            if window.every is None:
                return
            begins += window.every

    async def _fail(
        self, outages: Outages, devices: Sequence[PretendedDevice], *, service: bool = False
    ) -> None:
        """Take devices down in each outage: what is on them is lost, what is queued stays."""
        over = self.world.now()
        while True:
            begins = outages.begin(over)
            await self.world.sleep(begins - self.world.now())
            if service:
                self._up = self.world.future()
            for device in devices:
                device.go_down()
            over = outages.end(begins)
            await self.world.sleep(over - self.world.now())
            for device in devices:
                device.come_back()
            if self._up is not None and service:
                self._up.set_result(None)
                self._up = None


class ServedQpu(MeteredQpu):
    """A device of the service."""

    def __init__(
        self, shared: SharedQpus, name: str, slots: int, device: PretendedDevice, solver: Solver
    ) -> None:
        super().__init__(shared.world, solver.profile, slots)
        self.shared = shared
        self.name = name
        self.device = device
        self.meter = device.meter
        self.solver = solver
        self._callers: dict[JobContext, Caller] = {}

    def admit(self, job: JobContext, caller: Caller) -> None:
        """Set the caller on whose behalf a job submits."""
        self._callers[job] = caller

    def forget(self, job: JobContext) -> None:
        """Forget a finished job."""
        super().forget(job)
        self._callers.pop(job, None)

    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Check the payload against the device; a burst needs no check."""
        if not isinstance(payload, Burst):
            check(self.solver.device, payload, shots)

    async def describe(self) -> dict[str, Any]:
        """Describe the device."""
        device = self.solver.device
        return {"name": self.name, "kind": device.name, "properties": device.properties()}

    def renewed(self, slots: int) -> Qpu:
        """Create a QPU for the same device of the same service."""
        return ServedQpu(self.shared, self.name, slots, self.device, self.solver)

    async def backlog(self) -> float:
        """Expected wait according to the service, including the offload; inf if unknown."""
        model = self.shared.model
        wait = self.shared.service.devices[self.name].expected_wait
        return inf if wait is None else model.offload + model.wait + wait

    def task(self, payload: Payload) -> ServedTask:
        """Wrap a payload that becomes a task of the service once it runs."""
        caller = self._callers.setdefault(payload.job, Caller("user", job=len(self._callers)))
        return ServedTask(self, payload, caller)


class ServedTask(QpuTask):
    """A payload on its way through the service."""

    def __init__(self, qpu: ServedQpu, payload: Payload, caller: Caller) -> None:
        self._qpu = qpu
        self._payload = payload
        self._caller = caller
        self._since = qpu.world.now()
        self._seconds = qpu.profile.seconds(payload.content, payload.shots)
        self._task: ServiceTask | None = None

    @property
    def outlook(self) -> Outlook:
        """The service's estimate; before it has the payload, as if there were no queue."""
        now, model = self._qpu.world.now(), self._qpu.shared.model
        standing = self._qpu.shared.service.standing(self._task) if self._task else None
        if standing is None:
            start = max(now, self._since + model.offload + model.wait)
            return Outlook(0, start, start + self._seconds)
        if standing.start is None or standing.end is None:
            return Outlook(standing.position or 0, now + LONG, now + LONG + self._seconds)
        return Outlook(standing.position or 0, standing.start, standing.end)

    async def run(self) -> Any:
        """Submit the payload, wait for its end, and record the service's measurements."""
        shared, ledger = self._qpu.shared, self._payload.job.ledger
        await offloaded(shared.world, shared.model, self._payload.job)
        came = shared.world.now()
        task = await self._submitted()
        await self._over(task)
        shared.settle(task)
        started = shared.world.now() if task.started is None else task.started
        kind, lane = type(self._payload.content).__name__, f"qpu/{self._qpu.name}"
        last = min(task.used, shared.world.now() - started)
        lost = task.used - last
        if lost > MOMENT:  # attempts that a failure ended; when they began is not known any more
            ledger.enter("busy", lane, came, came + lost, kind)
        ledger.enter("wait", "qpu", min(came + lost, started), started, "the device")
        ledger.enter("busy", lane, started, started + last, kind)
        if task.state is not TaskState.DONE:
            raise QpuFailed(task.error or f"the service ended the payload: it is {task.state}")
        return self._qpu.solver.answer(self._payload)

    async def _submitted(self) -> ServiceTask:
        self._task = await self._qpu.shared.submit(
            self._caller, self._qpu.name, self._seconds, self._payload.seed
        )
        return self._task

    async def _over(self, task: ServiceTask) -> None:
        """Wait for a task to end; cancel the task if the wait is cancelled."""
        world, begun = self._qpu.world, self._qpu.device.begun
        if task.started is not None:
            self._payload.begun()
        if not task.over:
            waiter = world.future()
            task.waiters.append(waiter)
            begun[task.id] = self._payload.begun
            try:
                await waiter
            except CancelledError:
                world.start(self._qpu.shared.service.cancel(self._caller, task.id))
                raise
            finally:
                del begun[task.id]


def checked_policy(name: str) -> str:
    """Check that the service has a policy; UsageError lists the known ones."""
    if name not in POLICIES.names():
        known = ", ".join(POLICIES.names())
        raise UsageError(f"service.policy: there is no policy {name!r}; there are: {known}")
    return name


def _calendars(qpu: QpuModel) -> tuple[dict[str, float] | None, list[Window]]:
    """The service's calibration (the first regular window), and the windows it is drained for."""
    for number, window in enumerate(qpu.windows):
        if window.every is not None and window.at + window.lasts <= window.every:
            planned = {"every": window.every, "lasts": window.lasts, "first": window.at}
            return planned, [*qpu.windows[:number], *qpu.windows[number + 1 :]]
    return None, list(qpu.windows)
