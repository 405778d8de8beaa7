"""QPU slots granted by Slurm: each is a job of the driver, with a token for the service.

Munge proves the driver's user to the service, as in a job's prolog. So nobody has to pass the token
on: it exists only in the driver's memory, and expires with the job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from http.client import HTTPException
from itertools import count
from typing import Any

from qtide.backends.client.access import AUTHORITY, here
from qtide.backends.clusters.slurm.commands import Slurm, munge_socket_of
from qtide.backends.clusters.slurm.companion import Companion, CompanionOptions, Place, Requests
from qtide.backends.clusters.slurm.mark import Driver, qpu_name
from qtide.backends.clusters.slurm.prolog import (
    AdmissionFailed,
    PrologSettings,
    ProofFailed,
    admitted,
)
from qtide.backends.leases.qpu import Lease, Qpu, Slot, Slots
from qtide.core.forecasts import Wait
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.world.world import Future


class SlurmSlots(Slots):
    """Admission to one QPU by Slurm, which limits the number of jobs admitted at once."""

    def __init__(
        self,
        qpu: Qpu,
        slurm: Slurm,
        requests: Requests,
        options: CompanionOptions,
        enlist: Callable[[JobContext], Awaitable[None]],
    ) -> None:
        self._qpu = qpu
        self._slurm = slurm
        self._requests = requests
        self._options = options
        self._enlist = enlist
        self._live: dict[int, SlurmSlot] = {}
        self._started: set[Future[None]] = set()
        self._returning: dict[Ledger, set[Future[None]]] = {}

    def take(self, job: JobContext) -> Slot | None:
        """Return None: slots must be requested from Slurm."""
        return None

    async def acquire(self, job: JobContext) -> Slot:
        """Wait in Slurm's queue for a QPU without nodes."""
        return self._slot(job, await self.companion(job))

    def watch(self, freed: Callable[[], None]) -> None:
        """Do nothing: requests wait in Slurm's queue."""

    def log_in(self, companion: Companion) -> Future[ServiceLogin] | None:
        """Request the token of the slot's job from the device's service, if there is one."""
        url, job = self._qpu.service, companion.qpu_job or companion.job
        if url is None or job is None:
            return None
        return self._requests.world.start(self._login(url, job))

    async def settled(self, work: Future[Any]) -> None:
        """Wait until some work is over, whatever its outcome."""
        await self._requests.world.settled([work])

    async def _login(self, url: str, job: int) -> ServiceLogin:
        return await self._requests.world.offload(log_in, url, job, self._slurm)

    def words(self, job: JobContext) -> list[str]:
        """The salloc options for a job, or a job component, that holds a QPU."""
        return self._options.qpu(qpu_name(job), Driver.own().comment())

    def lease(self, job: JobContext, companion: Companion) -> Lease:
        """The lease of a QPU that was granted together with nodes."""
        return Lease(self._qpu, job, self._slot(job, companion))

    async def companion(self, job: JobContext) -> Companion:
        """Wait for a job that holds a QPU and nothing else."""
        await self._enlist(job)
        place = Place(job, Wait(self._requests.world.now()), "QPU")
        return await self._requests.granted(place, ["salloc", *self.words(job)])

    def free(self, number: int) -> None:
        """Forget a released slot."""
        self._live.pop(number, None)

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Start work that `close` waits for."""
        self._started = {each for each in self._started if not each.done()}
        started = self._requests.world.start(work)
        self._started.add(started)
        return started

    def bring_back(self, job: JobContext, work: Coroutine[Any, Any, None]) -> None:
        """Start returning a slot to Slurm."""
        under_way = {each for each in self._returning.get(job.ledger, ()) if not each.done()}
        self._returning[job.ledger] = under_way | {self.start(work)}

    async def returned(self, job: JobContext) -> None:
        """Wait until Slurm has back the slots that the job has released."""
        await self._requests.world.settled(self._returning.pop(job.ledger, set()))

    async def close(self) -> None:
        """Release all slots and wait until Slurm has them back."""
        for slot in list(self._live.values()):
            slot.release()
        await self._requests.world.settled(self._started)

    def _slot(self, job: JobContext, companion: Companion) -> SlurmSlot:
        number = next(each for each in count() if each not in self._live)
        slot = self._live[number] = SlurmSlot(self, job, number, companion)
        return slot


class SlurmSlot(Slot):
    """A slot that lasts as long as its Slurm job; if Slurm takes it away, it is requested again."""

    def __init__(
        self, slots: SlurmSlots, job: JobContext, number: int, companion: Companion
    ) -> None:
        super().__init__(job, number, slots.free, str(companion.lease_job))
        self._slots = slots
        self._job = job
        self._renewal = asyncio.Lock()
        self._released = False
        self._hold(companion)

    async def ready(self) -> None:
        """Wait until the slot is held; concurrent phases request it only once."""
        async with self._renewal:
            if self._lost.done() and not self._released:
                with self._job.ledger.span("wait", "qpu", "a lease"):
                    self._hold(await self._slots.companion(self._job))
                if self._released:
                    self._drop()
                    self._slots.bring_back(self._job, self._companion.end_qpu())
                else:
                    label = str(self._companion.lease_job)
                    self._held = self._job.ledger.span("held", f"vqpu/{self.number}", label)
            await self._log_in()

    def release(self) -> None:
        """End the slot's Slurm job now; the slot counts as held until Slurm has it back."""
        if not self._released:
            self._released = True
            self._free(self.number)
            self._drop()
            self._slots.bring_back(self._job, self._give_back())

    async def _log_in(self) -> None:
        """Wait until the service has answered the request for a token."""
        if self._login is not None and not self._released:
            await self._slots.settled(self._login)  # a plain await would cancel it along with us
            if not self._login.cancelled():
                login = self._login.result()
                self.token, self.refusal = login.token, login.refusal

    def _hold(self, companion: Companion) -> None:
        self._companion = companion
        self._login = self._slots.log_in(companion)
        self._lost = self._slots.start(self._lose())

    async def _lose(self) -> None:
        """Detect when the job is cancelled or reaches its time limit."""
        await self._companion.qpu_gone()
        self._held.close()
        await self._companion.end_qpu()

    async def _give_back(self) -> None:
        try:
            await self._companion.end_qpu()
        finally:
            self._held.close()

    def _drop(self) -> None:
        """Stop watching for the job's loss and waiting for its token."""
        self._lost.cancel()
        if self._login is not None:
            self._login.cancel()


@dataclass(frozen=True)
class ServiceLogin:
    """A job's token, or the reason why there is none."""

    token: str | None = None
    refusal: str | None = None


def log_in(url: str, job: int, slurm: Slurm) -> ServiceLogin:
    """Request the token of one of our running jobs that holds a slot from the service."""
    known, munge = here(url), munge_socket_of(slurm)
    settings = PrologSettings(
        url,
        ca=os.environ.get(AUTHORITY, ""),
        munge_socket=str(munge or ""),
        socket=str(known.socket) if known else "",
    )
    try:
        return ServiceLogin(token=admitted(settings, job)["QTIDE_TOKEN"])
    except (OSError, ValueError, AdmissionFailed, ProofFailed, HTTPException) as error:
        return ServiceLogin(refusal=f"job {job} got no token: {error}")
