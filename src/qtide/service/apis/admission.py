"""The way in for jobs of Slurm: a munge credential for a token that lives as long as the job."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from qtide.service import tokens
from qtide.service.admission.admission import Grant, Request, SlurmAdmission, Unproven, Unreachable
from qtide.service.apis.forms import refusals
from qtide.service.configuration import Slurm
from qtide.service.quotas import QuotaExceeded
from qtide.service.service import Service
from qtide.service.task import Caller
from qtide.service.tokens import Register
from qtide.slurm.commands import Slurm as Commands
from qtide.slurm.licences import Licences

log = logging.getLogger(__name__)

LASTS = 30 * 86_400.0
"""Seconds that a job's token lives at most, should Slurm never again say that the job is over."""
WATCH = 3.0
"""Seconds between two questions which jobs still run."""


class Admitted(BaseModel):
    """What a job gets."""

    token: str
    user: str
    account: str
    job: int
    devices: list[str]
    """Those with an IQM door."""


class Gate:
    """Lets jobs in, and their tokens end with them."""

    def __init__(self, service: Service, register: Register, settings: Slurm) -> None:
        self._broker = service
        self._register = register
        names = {settings.licence, settings.gres}
        self._licences = Licences(Commands(settings.conf), settings.licence)
        self._slurm = SlurmAdmission(settings.cluster, settings.conf, settings.munge_socket, names)

    async def admit(self, credential: str, request: Request) -> Admitted:
        """Give a token to a job that has a slot."""
        grant = await self._slurm.admit(credential, request)
        await self._refuse_if_full(grant)
        caller = Caller(grant.user, grant.account, grant.job)
        token, write = tokens.issue(caller, LASTS, f"job {grant.job}", grant.holder)
        await self._broker.store.write(write)
        log.info("job admitted", extra={"job": grant.job, "user": grant.user})
        return Admitted(
            token=token,
            user=grant.user,
            account=grant.account,
            job=grant.job,
            devices=self._broker.names_with_door("iqm"),
        )

    async def watch(self) -> None:
        """End the tokens of jobs that are over, for as long as the service lives."""
        while True:
            await asyncio.sleep(WATCH)
            try:
                await self._end_tokens()
            except Unreachable as error:
                log.warning("Slurm does not say which jobs run", extra={"why": str(error)})

    async def withhold(self, slots: int) -> None:
        """Let Slurm hand out so many licences fewer, while devices are drained."""
        await self._licences.withhold(min(slots, await self._licences.total()))

    def close(self) -> None:
        """End what admission has going."""
        self._slurm.close()

    async def _end_tokens(self) -> None:
        known = self._broker.store.read(tokens.holders)
        over = known - await self._slurm.running(known)
        if over:
            await self._broker.store.write(tokens.end_with(over))
            self._register.forget()
            log.info("jobs ended", extra={"jobs": sorted(each.job for each in over)})

    async def _refuse_if_full(self, grant: Grant) -> None:
        """Slurm counts as well; but its licences may be more than the devices have slots."""
        slots = sum(each.setup.slots for each in self._broker.machines.values())
        if self._others(grant) >= slots:
            await self._end_tokens()  # some of those jobs may have just ended
        if self._others(grant) >= slots:
            raise QuotaExceeded(
                f"all {slots} virtual QPUs are taken by other jobs; lower Slurm's number of "
                "licences to that, so that jobs wait there"
            )

    def _others(self, grant: Grant) -> int:
        """How many other jobs have a virtual QPU."""
        return len(self._broker.store.read(tokens.holders) - {grant.holder})


def admission_door(gate: Gate) -> APIRouter:
    """The one route."""
    door = APIRouter(prefix="/v1", responses=refusals(401, 403, 413, 429, 503), tags=["admission"])

    @door.post("/admission")
    async def admit(request: HttpRequest) -> Admitted:
        """For a job's prolog: `Authorization: Munge CREDENTIAL`, body `{"job": NUMBER}`."""
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "munge":
            raise Unproven("admission takes a munge credential: Authorization: Munge CREDENTIAL")
        body = await request.body()
        return await gate.admit(credential, Request("POST", request.url.path, body))

    return door
