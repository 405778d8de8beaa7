"""An emulated QPU: a device in this process or in a worker, with the timing of a technology.

It runs one payload at a time, ordered by job: payloads of earlier jobs go first. So jobs end one
after the other; in order of payloads, all would end late. A payload that has waited for a day is
no longer overtaken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

from qtide.backends.devices.device import Device, DeviceAway, WorkerLost
from qtide.backends.devices.profile import Profile
from qtide.backends.devices.runner import Runner
from qtide.backends.leases.qpu import Payload, Qpu, QpuFailed, QpuTask, check
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.payloads.payload import Burst
from qtide.core.forecasts import Outlook, Slips
from qtide.core.job import JobContext
from qtide.core.world.world import Future, World

Suit = Callable[[Any], tuple[Device, Runner | None] | None]
"""Returns another device than the default that suits a payload, with its runner; or None."""
OVERTAKEN = 86_400.0
"""Seconds of waiting after which a payload is no longer overtaken."""


@dataclass(eq=False)
class EmulatedTask(QpuTask):
    """A payload for the device's queue."""

    qpu: EmulatedQpu
    payload: Payload
    seconds: float
    go: Future[None]
    rank: int
    """Number of jobs that arrived before the payload's job."""
    since: float
    began: float | None = None

    @property
    def outlook(self) -> Outlook:
        """Position in the queue, and expected start and end."""
        return self.qpu.outlook(self)

    async def run(self) -> Any:
        """Wait in the queue and return the answer."""
        return await self.qpu.serve(self)


class EmulatedQpu(Qpu):
    """One device behind `slots` leases; without a runner, this process computes the answers."""

    def __init__(
        self,
        world: World,
        device: Device,
        profile: Profile,
        slots: int = 1,
        fails: Callable[[int], bool] = lambda _: False,
        runner: Runner | None = None,
        suit: Suit | None = None,
    ) -> None:
        super().__init__(world, profile, slots)
        self.device = device
        self._runner = runner
        self._suit = suit
        self._origin = self
        """The QPU that this one renews; it alone chooses a device and closes its worker."""
        self._fails = fails
        self._served = 0
        self._queue: list[EmulatedTask] = []
        """Payloads in order; the first one is on the device."""
        self._ranks: dict[JobContext, int] = {}
        self._arrivals = count()
        self._slips = Slips()

    async def check(self, payload: Any, shots: int | None = None) -> None:
        """Check with the device; every payload but a burst needs a format, as it may be sent."""
        if not isinstance(payload, Burst):
            self._choose(payload)
            await self.world.offload(check, self.device, payload, shots)

    def _choose(self, payload: Any) -> None:
        """Let the first payload choose the device, if the user has named none."""
        origin = self._origin
        suit, origin._suit = origin._suit, None
        found = suit(payload) if suit is not None else None
        if found is not None:
            origin.device, origin._runner = found
        self.device, self._runner = origin.device, origin._runner

    async def describe(self) -> dict[str, Any]:
        """The device's own description."""
        properties = await self.world.offload(self.device.properties)
        return {"name": self.device.name, "kind": self.device.name, "properties": properties}

    def renewed(self, slots: int) -> EmulatedQpu:
        """The same device in the same worker, with its own new queue and leases."""
        made = EmulatedQpu(self.world, self.device, self.profile, slots, self._fails, self._runner)
        made._origin = self._origin
        return made

    async def backlog(self) -> float:
        """Expected remaining seconds of all queued payloads."""
        return self._ahead(len(self._queue))

    def start(self) -> None:
        """Start the worker, if any."""
        if self._runner is not None:
            self._runner.start()

    async def close(self) -> None:
        """Stop the worker, if any."""
        if self._runner is not None:
            await self._runner.close()

    def task(self, payload: Payload) -> EmulatedTask:
        """Create a task; it joins the queue when it runs."""
        seconds = self.profile.seconds(payload.content, payload.shots)
        if payload.job not in self._ranks:
            self._ranks[payload.job] = next(self._arrivals)
        rank = self._ranks[payload.job]
        return EmulatedTask(self, payload, seconds, self.world.future(), rank, self.world.now())

    async def serve(self, task: EmulatedTask) -> Any:
        """Run a payload when its turn comes."""
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
        """Position in the queue, and expected start and end."""
        now, start = self.world.now(), task.began
        position = self._queue.index(task)
        if start is None:
            start = now + self._slips.corrected(task.payload.job, self._ahead(position))
        return Outlook(position, start, max(now, start + task.seconds))

    def forget(self, job: JobContext) -> None:
        """Drop a finished job's data, which would accumulate over thousands of jobs."""
        self._ranks.pop(job, None)
        self._slips.forget(job)

    def duration(self, task: EmulatedTask) -> float:
        """Actual seconds that the payload occupies the device: as many as expected."""
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
        """Expected seconds of the payloads ahead of a queue position."""
        now = self.world.now()
        return sum(self._remaining(each, now) for each in self._queue[:position])

    def _place(self, task: EmulatedTask) -> int:
        """Queue position: behind its own and earlier jobs' payloads, and those that waited long."""
        now, place = self.world.now(), len(self._queue)
        while place > 1:
            before = self._queue[place - 1]
            if before.rank <= task.rank or now - before.since > OVERTAKEN:
                break
            place -= 1
        return place

    async def _solve(self, task: EmulatedTask) -> Any:
        """Return the answer, but not before the profile's time is over."""
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
        """Compute the device's answer; a burst carries its own and needs no worker."""
        if self._runner is None or isinstance(content, Burst):
            return await self.world.offload(self.device.solve, content, shots, seed)
        try:
            return await self._runner.solve(content, shots, seed)
        except (WorkerLost, DeviceAway) as error:
            raise QpuFailed(str(error)) from None

    async def _ready(self, payload: Payload) -> None:
        """Wait for a worker that is still starting; this does not count as the payload's time."""
        if self._runner is None or self._runner.is_ready or isinstance(payload.content, Burst):
            return
        with payload.job.ledger.span("wait", "qpu", "the device"):
            await self._runner.ready()

    def _remaining(self, task: EmulatedTask, now: float) -> float:
        return task.seconds if task.began is None else max(0.0, task.began + task.seconds - now)


class ModelledQpu(EmulatedQpu):
    """An emulated QPU with a site model's delays."""

    def __init__(
        self,
        world: World,
        device: Device,
        profile: Profile,
        slots: int,
        model: QpuModel,
        number: int = 0,
    ) -> None:
        """`number` tells the QPUs of a site apart: each fails at times of its own."""
        super().__init__(world, device, profile, slots)
        self.model = model
        self._number = number
        self._outages = model.failures.outages(number) if model.failures else None

    def renewed(self, slots: int) -> ModelledQpu:
        """The same device with its own new queue and leases."""
        return ModelledQpu(self.world, self.device, self.profile, slots, self.model, self._number)

    async def serve(self, task: EmulatedTask) -> Any:
        """Offload the payload first, then queue it; others may get ahead in the meantime."""
        await offloaded(self.world, self.model, task.payload.job)
        return await super().serve(task)

    def outlook(self, task: EmulatedTask) -> Outlook:
        """The outlook; assumes that a payload not in the queue yet will join at its end."""
        if task in self._queue:
            return super().outlook(task)
        arrives = max(self.world.now(), task.since + self.model.offload + self.model.wait)
        start = arrives + self._ahead(len(self._queue))
        return Outlook(len(self._queue), start, start + task.seconds)

    async def backlog(self) -> float:
        """Expected wait including offloading, others' payloads and the device's downtime."""
        arrives = self.world.now() + self.model.offload + self.model.wait
        queued = arrives + self._ahead(len(self._queue))
        return self.model.back(queued) - self.world.now()

    def duration(self, task: EmulatedTask) -> float:
        """Random duration; it depends only on the phase's seed, whatever else happens."""
        return task.seconds * self.model.factor(task.payload.seed)

    def _place(self, task: EmulatedTask) -> int:
        """Queue position according to the model's order."""
        return len(self._queue) if self.model.order == "arrival" else super()._place(task)

    async def _ready(self, payload: Payload) -> None:
        """Wait until a calibration or maintenance window, or a repair, is over."""
        while True:
            now = self.world.now()
            back = self.model.back(now)
            repaired = self._outages.end(now) if self._outages else now
            if max(back, repaired) <= now:
                return
            why = "repair" if repaired > back else "maintenance"
            with payload.job.ledger.span("wait", "qpu", why):
                await self.world.sleep(max(back, repaired) - now)

    async def _solve(self, task: EmulatedTask) -> Any:
        """Return the answer, unless the device fails meanwhile."""
        now = self.world.now()
        failure = self._outages.begin(now) if self._outages else inf
        if now + self.duration(task) <= failure:
            return await super()._solve(task)
        await self.world.sleep(failure - now)
        raise QpuFailed(f"the {self.profile.name} QPU failed while it ran a payload")


async def offloaded(world: World, model: QpuModel, job: JobContext) -> None:
    """Wait for a payload's way to the device's queue and for others' payloads ahead of it."""
    await world.sleep(model.offload)
    if model.wait:
        with job.ledger.span("wait", "qpu", "others"):
            await world.sleep(model.wait)
