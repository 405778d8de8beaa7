"""The QPUs of a stage: behind the vQPU service, or each with a queue of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qtide.devices.bursts import Bursts
from qtide.devices.profile import UNTIMED
from qtide.jobs.job import Job
from qtide.leases.emulated import EmulatedTask
from qtide.leases.fifo import FifoSlots
from qtide.leases.meter import Meter, Metered
from qtide.leases.modelled import ModelledQpu
from qtide.models.site import QpuModel, SiteModel
from qtide.runs.served import Promises, ServedQpu, SharedQpus
from qtide.service.task import Caller
from qtide.world.world import World


class QueuedQpu(Metered, ModelledQpu):
    """A QPU with a queue of its own."""

    def __init__(self, world: World, slots: int, model: QpuModel) -> None:
        super().__init__(world, Bursts(), UNTIMED, slots, model)
        self.meter = Meter(world)

    def forget(self, job: Job) -> None:
        """The job is over."""
        Metered.forget(self, job)
        ModelledQpu.forget(self, job)

    async def _solve(self, task: EmulatedTask) -> Any:
        with self.meter.working():
            return await super()._solve(task)


class Qpus:
    """All of them; a job goes to the one that the fewest other jobs use."""

    def __init__(self, world: World, model: SiteModel, vqpus: int) -> None:
        self._shared: SharedQpus | None = None
        self.all: Sequence[QueuedQpu | ServedQpu]
        if model.service is not None:
            self._shared = SharedQpus(world, model.qpu, model.service, vqpus)
            self.all = self._shared.qpus
        else:
            self.all = [QueuedQpu(world, vqpus, model.qpu) for _ in range(model.qpu.number)]
        if model.qpu.licences is not None:
            licences = FifoSlots(world, model.qpu.licences)
            for qpu in self.all:
                qpu.admission = licences
        self._using = [0] * len(self.all)
        self.idle_wanted = 0.0
        """Seconds, of all QPUs together, in which one idled while a job waited for a lease."""

    @property
    def promises(self) -> Promises:
        """What the service promised, and kept."""
        return self._shared.promises if self._shared else Promises()

    async def open(self) -> None:
        """Start the service, if there is one."""
        if self._shared is not None:
            await self._shared.open()

    async def close(self) -> None:
        """Stop it."""
        self.idle_wanted = sum(qpu.meter.idle() for qpu in self.all)
        if self._shared is not None:
            await self._shared.close()

    def choose(self) -> int:
        """The number of the QPU for the next job."""
        number = self._using.index(min(self._using))
        self._using[number] += 1
        return number

    def welcome(self, number: int, job: Job, user: int, which: int) -> None:
        """Tell the service whose job it is."""
        qpu = self.all[number]
        if isinstance(qpu, ServedQpu):
            qpu.admit(job, Caller(f"user-{user}", job=which))

    def leave(self, number: int, job: Job) -> None:
        """The job is over."""
        self._using[number] -= 1
        self.all[number].forget(job)
