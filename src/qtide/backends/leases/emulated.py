"""An emulated QPU: a device in this process or in a worker, with the timing of a technology.

It runs payloads one after the other, job by job: those of the job that came first go first. So
jobs end one after the other; in the order of payloads, all would end late. No payload is overtaken
for longer than a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from qtide.backends.devices.device import Device, DeviceAway, WorkerLost
from qtide.backends.devices.profile import Profile
from qtide.backends.devices.runner import Runner
from qtide.backends.leases.qpu import Payload, Qpu, QpuFailed, QpuTask, check
from qtide.backends.models.site_model import QpuModel
from qtide.backends.payloads.payload import Burst
from qtide.core.forecasts import Outlook, Slips
from qtide.core.job import JobContext
from qtide.core.world.world import Future, World

OVERTAKEN = 86_400.0
"""Seconds after which a payload is no longer overtaken by any other."""


@dataclass(eq=False)
class EmulatedTask(QpuTask):
    """A payload in the device's queue."""

    qpu: EmulatedQpu
    payload: Payload
    seconds: float
    go: Future[None]
    rank: int
    """How many jobs came before its job."""
    since: float
    began: float | None = None

    @property
    def outlook(self) -> Outlook:
        """When the payloads before this one, and this one itself, should be done."""
        return self.qpu.outlook(self)

    async def run(self) -> Any:
        """Wait in the queue, and return the answer."""
        return await self.qpu.serve(self)


class EmulatedQpu(Qpu):
    """One device behind `slots` leases; without a runner, its answers are computed here."""

    def __init__(
        self,
        world: World,
        device: Device,
        profile: Profile,
        slots: int = 1,
        fails: Callable[[int], bool] = lambda _: False,
        runner: Runner | None = None,
    ) -> None:
        super().__init__(world, profile, slots)
        self.device = device
        self._runner = runner
        self._fails = fails
        self._served = 0
        self._queue: list[EmulatedTask] = []
        """The queue; its first payload is on the device."""
        self._ranks: dict[JobContext, int] = {}
        self._arrivals = count()
        self._slips = Slips()

    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Ask the device; every payload but a burst needs a format, since it may be sent."""
        if not isinstance(payload, Burst):
            await self.world.offload(check, self.device, payload, shots)

    async def describe(self) -> dict[str, Any]:
        """As the device says."""
        properties = await self.world.offload(self.device.properties)
        return {"name": self.device.name, "kind": self.device.name, "properties": properties}

    def renewed(self, slots: int) -> EmulatedQpu:
        """The same device, in the same worker."""
        return EmulatedQpu(self.world, self.device, self.profile, slots, self._fails, self._runner)

    async def backlog(self) -> float:
        """What the payloads in the queue should still take."""
        return self._ahead(len(self._queue))

    def start(self) -> None:
        """Start the worker, if there is to be one."""
        if self._runner is not None:
            self._runner.start()

    async def close(self) -> None:
        """End the worker."""
        if self._runner is not None:
            await self._runner.close()

    def task(self, payload: Payload) -> EmulatedTask:
        """A payload that takes its place in the queue once it runs."""
        seconds = self.profile.seconds(payload.content, payload.shots)
        if payload.job not in self._ranks:
            self._ranks[payload.job] = next(self._arrivals)
        rank = self._ranks[payload.job]
        return EmulatedTask(self, payload, seconds, self.world.future(), rank, self.world.now())

    async def serve(self, task: EmulatedTask) -> Any:
        """Run a payload when its turn has come."""
        payload = task.payload
        try:
            await self._queue_up(task)
            await self._ready(payload)
            task.began = self.world.now()
            payload.begun()
            kind = type(payload.content).__name__
            with payload.job.ledger.span("busy", f"qpu/{self.device.name}", kind):
                return await self._solve(task)
        finally:
            self._queue.remove(task)
            if self._queue and not self._queue[0].go.done():
                self._queue[0].go.set_result(None)

    def outlook(self, task: EmulatedTask) -> Outlook:
        """When the payloads before this one, and this one itself, should be done."""
        now, start = self.world.now(), task.began
        position = self._queue.index(task)
        if start is None:
            start = now + self._slips.corrected(task.payload.job, self._ahead(position))
        return Outlook(position, start, max(now, start + task.seconds))

    def forget(self, job: JobContext) -> None:
        """The job is over: where thousands come and go, what is known of it would add up."""
        self._ranks.pop(job, None)
        self._slips.forget(job)

    def duration(self, task: EmulatedTask) -> float:
        """How long the device is really occupied: as long as expected."""
        return task.seconds

    async def _queue_up(self, task: EmulatedTask) -> None:
        self._queue.insert(self._place(task), task)
        if self._queue[0] is task:
            return
        expected = self._ahead(self._queue.index(task))
        with task.payload.job.ledger.span("wait", "qpu", "the device"):
            await task.go
        self._slips.add(task.payload.job, expected, self.world.now() - task.since)

    def _ahead(self, position: int) -> float:
        """How long the payloads before a place should take."""
        now = self.world.now()
        return sum(self._remaining(each, now) for each in self._queue[:position])

    def _place(self, task: EmulatedTask) -> int:
        """After all payloads of its own and of earlier jobs, and those that waited too long."""
        now, place = self.world.now(), len(self._queue)
        while place > 1:
            before = self._queue[place - 1]
            if before.rank <= task.rank or now - before.since > OVERTAKEN:
                break
            place -= 1
        return place

    async def _solve(self, task: EmulatedTask) -> Any:
        """The answer, once the profile's time is over; emulation never takes less."""
        self._served += 1
        number, began = self._served, self.world.now()
        content, shots, seed = task.payload.content, task.payload.shots, task.payload.seed
        shots = self.profile.shots if shots is None else shots
        answer = await self._answer(content, shots, seed)
        await self.world.sleep(began + self.duration(task) - self.world.now())
        if self._fails(number):
            raise QpuFailed(f"the {self.profile.name} QPU failed on its payload {number}")
        return answer

    async def _answer(self, content: Any, shots: int, seed: int) -> Any:
        """What the device finds; a burst carries its answer."""
        if self._runner is None or isinstance(content, Burst):
            return await self.world.offload(self.device.solve, content, shots, seed)
        try:
            return await self._runner.solve(content, shots, seed)
        except (WorkerLost, DeviceAway) as error:
            raise QpuFailed(str(error)) from None

    async def _ready(self, payload: Payload) -> None:
        """Wait for a worker that is still starting: that is not the payload's time."""
        if self._runner is None or self._runner.is_ready or isinstance(payload.content, Burst):
            return
        with payload.job.ledger.span("wait", "qpu", "the device"):
            await self._runner.ready()

    def _remaining(self, task: EmulatedTask, now: float) -> float:
        return task.seconds if task.began is None else max(0.0, task.began + task.seconds - now)


class ModelledQpu(EmulatedQpu):
    """The emulated QPU, with delays."""

    def __init__(
        self, world: World, device: Device, profile: Profile, slots: int, model: QpuModel
    ) -> None:
        super().__init__(world, device, profile, slots)
        self.model = model

    def renewed(self, slots: int) -> ModelledQpu:
        """The same device with a queue of its own."""
        return ModelledQpu(self.world, self.device, self.profile, slots, self.model)

    async def serve(self, task: EmulatedTask) -> Any:
        """Offload the payload first; then others may be before it."""
        await offloaded(self.world, self.model, task.payload.job)
        return await super().serve(task)

    def outlook(self, task: EmulatedTask) -> Outlook:
        """A payload that is not in the queue yet will be the last one there."""
        if task in self._queue:
            return super().outlook(task)
        arrives = max(self.world.now(), task.since + self.model.offload + self.model.wait)
        start = arrives + self._ahead(len(self._queue))
        return Outlook(len(self._queue), start, start + task.seconds)

    async def backlog(self) -> float:
        """With what offloading costs, others' payloads, and until the device is back."""
        arrives = self.world.now() + self.model.offload + self.model.wait
        queued = arrives + self._ahead(len(self._queue))
        return self.model.back(queued) - self.world.now()

    def duration(self, task: EmulatedTask) -> float:
        """Drawn by the seed of the phase: the same, whatever else happens."""
        return task.seconds * self.model.factor(task.payload.seed)

    def _place(self, task: EmulatedTask) -> int:
        """Where a payload takes its place in the queue."""
        return len(self._queue) if self.model.order == "arrival" else super()._place(task)

    async def _ready(self, payload: Payload) -> None:
        """Wait until a calibration or a maintenance is over."""
        now = self.world.now()
        back = self.model.back(now)
        if back > now:
            with payload.job.ledger.span("wait", "qpu", "maintenance"):
                await self.world.sleep(back - now)


async def offloaded(world: World, model: QpuModel, job: JobContext) -> None:
    """Wait until a payload has reached the device's queue, and the others' that are before it."""
    await world.sleep(model.offload)
    if model.wait:
        with job.ledger.span("wait", "qpu", "others"):
            await world.sleep(model.wait)
