"""How long a QPU idles while a job waits for a virtual QPU of it, counted as it happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qtide.jobs.job import Job
from qtide.leases.qpu import Lease, Qpu
from qtide.world.world import World


class Meter:
    """Knows who wants a QPU and whether it works."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wanting: dict[Job, None] = {}
        self._working = 0
        self._since = 0.0
        self._idle = 0.0

    def idle(self) -> float:
        """The seconds up to now in which it idled while a job wanted it."""
        now = self._world.now()
        if self._wanting and not self._working:
            self._idle += now - self._since
        self._since = now
        return self._idle

    def wanted(self, job: Job) -> None:
        """A job has to wait for a lease."""
        self.idle()
        self._wanting[job] = None

    def satisfied(self, job: Job) -> None:
        """It waits no longer."""
        self.idle()
        self._wanting.pop(job, None)

    @contextmanager
    def working(self) -> Iterator[None]:
        """The device is occupied meanwhile."""
        self.idle()
        self._working += 1
        try:
            yield
        finally:
            self.idle()
            self._working -= 1


class Metered(Qpu):
    """A QPU that tells its meter who waits for a lease."""

    meter: Meter

    async def lease(self, job: Job) -> Lease:
        """Wait for a slot."""
        self.meter.wanted(job)
        try:
            return await super().lease(job)
        finally:
            self.meter.satisfied(job)

    def take(self, job: Job) -> Lease | None:
        """A slot at once, if one is free; otherwise the job, or its cluster for it, waits."""
        lease = super().take(job)
        if lease is None:
            self.meter.wanted(job)
        else:
            self.meter.satisfied(job)
        return lease

    def forget(self, job: Job) -> None:
        """The job is over."""
        self.meter.satisfied(job)
