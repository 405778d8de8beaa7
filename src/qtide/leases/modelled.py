"""A QPU as a site file describes it: with what offloading costs, and when the device is away."""

from __future__ import annotations

from typing import Any

from qtide.devices.device import Device
from qtide.devices.profile import Profile
from qtide.forecasts.outlook import Outlook
from qtide.jobs.job import Job
from qtide.leases.emulated import EmulatedQpu, EmulatedTask
from qtide.leases.qpu import Payload
from qtide.models.site import QpuModel
from qtide.world.world import World


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


async def offloaded(world: World, model: QpuModel, job: Job) -> None:
    """Wait until a payload has reached the device's queue, and the others' that are before it."""
    await world.sleep(model.offload)
    if model.wait:
        with job.ledger.span("wait", "qpu", "others"):
            await world.sleep(model.wait)
