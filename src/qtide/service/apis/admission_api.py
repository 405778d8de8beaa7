"""Admission of Slurm jobs, which exchange a munge credential for a token that ends with the job."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import BaseModel

from qtide.backends.clusters.slurm.commands import Slurm as Commands
from qtide.backends.clusters.slurm.commands import SlurmFailed
from qtide.backends.clusters.slurm.licences import Licences
from qtide.backends.clusters.slurm.prolog import certified, served_by
from qtide.core.errors import QtideError
from qtide.core.world.world import BackgroundTasks
from qtide.service import tokens
from qtide.service.admission import AdmissionRequest, Grant, Refused, SlurmAdmission, Unproven
from qtide.service.apis.api import Api
from qtide.service.apis.forms import refusals
from qtide.service.apis.request_gate import Authenticator, read_body
from qtide.service.availability import Availability
from qtide.service.configuration import Configuration, SlurmSection
from qtide.service.configuration_check import without_effect
from qtide.service.connection import KEY
from qtide.service.identities import SlurmTokens
from qtide.service.job_records import LOOK, JobRecords, admitted
from qtide.service.quotas import QuotaExceeded
from qtide.service.service import Service
from qtide.service.task import Caller

log = logging.getLogger(__name__)

LASTS = 30 * 86_400.0
"""Maximum seconds that a job's token is valid, even if Slurm never reports the job's end."""
STARTING = 5.0
"""Seconds that a job waits for the devices of a service that has just started."""
WATCH = 3.0
"""Seconds between two queries for the jobs that still run."""


class Admitted(BaseModel):
    """The response to an admitted job."""

    token: str
    user: str
    account: str
    job: int
    devices: list[str]
    """The devices that the job may use through IQM's API."""


class JobAdmission:
    """Admits jobs, and revokes their tokens when they end."""

    def __init__(self, service: Service, settings: SlurmSection) -> None:
        self._service = service
        self._register = service.register
        names = {settings.licence, settings.gres}
        plan = settings.availability
        if plan is not None:
            devices = service.configuration.devices
            names |= {plan.licence.replace("{device}", name) for name in devices}
        self._plan = plan
        self._field = settings.job_record
        self._commands = Commands(settings.conf)
        self.licences = Licences(self._commands, settings.licence)
        limits = service.configuration.limits
        self._slurm = SlurmAdmission(
            settings.conf,
            settings.munge_socket,
            names,
            waiting=limits.admissions_per_user,
            trust_accounts=settings.trust_accounts,
        )
        if settings.jwt_key is not None:
            self._slurm.add_prover("slurm", SlurmTokens(settings.jwt_key))
        service.slurm_calls = lambda: self._slurm.queries
        self._given: dict[Grant, asyncio.Task[str]] = {}
        self._background = BackgroundTasks(service.world)
        self.audiences: frozenset[str] = frozenset()
        self._adopt(service.configuration)
        service.on_reconfigured.append(self._adopt)

    def _adopt(self, configuration: Configuration) -> None:
        """Note what jobs know this service by: its user (or root), and its certificates."""
        proxy = configuration.slurm.certificate if configuration.slurm else None
        files = [each for each in (configuration.certificate, proxy) if each is not None]
        known = {served_by(user) for user in (0, os.geteuid())}
        self.audiences = frozenset(known | {certified(_certificate(file)) for file in files})

    @property
    def schemes(self) -> list[str]:
        """The schemes of authorization by which jobs can prove their user."""
        return self._slurm.schemes

    async def admit(
        self, credential: str, request: AdmissionRequest, peer: str, scheme: str
    ) -> Admitted:
        """Give a token to a job that holds a slot; if it asks again, give the same one."""
        grant = await self._slurm.admit(credential, request, peer, scheme)
        await self._refuse_if_full(grant)
        caller = Caller(grant.user, grant.account, grant.job)
        if why := self._service.why_nothing_left(caller):
            self._background.start(self._tell_slurm(grant.job, why))
            raise Refused(why)
        # a device that still starts has not said yet whether it takes circuits of IQM's
        devices = self._service.devices.values()
        await self._service.world.all_of([each.tried(STARTING) for each in devices])
        return Admitted(
            token=await self._token(grant, caller),
            user=grant.user,
            account=grant.account,
            job=grant.job,
            devices=self._service.names_taking("iqm", caller),
        )

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Watch the jobs while the service runs."""
        background = self._background
        if warning := await without_effect(self._service.configuration):
            log.warning("settings without effect", extra={"why": warning})
        background.repeat("watch over tokens", self._end_tokens, WATCH, longest=WATCH)
        if self._plan is not None:
            keep = Availability(self._service, self._commands, self._plan)
            background.repeat("keep Slurm informed", keep.look, self._plan.every)
        if self._field != "none":
            tell = JobRecords(self._service.store, self._commands, self._field)
            background.repeat("write records of jobs", tell.look, LOOK)
        try:
            yield
        finally:
            await background.cancel()
            self._slurm.close()

    async def _token(self, grant: Grant, caller: Caller) -> str:
        """The job's token if still valid, else a new one; all tasks of a job share one request."""
        given = self._given.get(grant)
        if given is None or (given.done() and not self._is_valid(given)):
            given = self._given[grant] = asyncio.create_task(self._issue(grant, caller))
        return await asyncio.shield(given)

    def _is_valid(self, given: asyncio.Task[str]) -> bool:
        if given.cancelled() or given.exception() is not None:
            return False
        return tokens.is_valid(self._service.store, given.result())

    async def _issue(self, grant: Grant, caller: Caller) -> str:
        most = self._service.configuration.limits.tokens_per_job
        if self._register.count(grant.holder) >= most:
            raise QuotaExceeded(f"job {grant.job} has {most} tokens already, as many as allowed")
        await self._service.store.write(
            admitted(grant.job, grant.holder.start, grant.user, self._service.now())
        )
        token = await self._register.issue(caller, LASTS, f"job {grant.job}", grant.holder)
        log.info("job admitted", extra={"job": grant.job, "user": grant.user})
        return token

    async def _tell_slurm(self, job: int, text: str) -> None:
        """Write into the job's record in Slurm, for `scontrol show job` and `sacct`."""
        try:
            comment = f"AdminComment=qtide: {text}"
            await self._commands.output("scontrol", "update", f"JobId={job}", comment)
        except SlurmFailed as error:  # it takes a Slurm operator
            log.warning("Slurm was not told", extra={"job": job, "why": str(error)})

    async def _end_tokens(self) -> None:
        known = self._register.holders()
        over = known - await self._slurm.running(known)
        if over:
            await self._register.end_with(over)
            log.info("jobs ended", extra={"jobs": sorted(each.job for each in over)})
        for grant in [each for each in self._given if each.holder in over]:
            del self._given[grant]

    async def _refuse_if_full(self, grant: Grant) -> None:
        """Refuse if all slots are taken; Slurm may have more licences than the devices slots."""
        slots = self._service.slots
        if self._others(grant) >= slots:
            await self._end_tokens()  # some of those jobs may have just ended
        if self._others(grant) >= slots:
            raise QuotaExceeded(
                f"all {slots} virtual QPUs are taken by other jobs; lower Slurm's number of "
                "licences to that, so that jobs wait there"
            )

    def _others(self, grant: Grant) -> int:
        """Number of other jobs that hold a virtual QPU."""
        return len(self._register.holders() - {grant.holder})


def _certificate(file: Path) -> bytes:
    """The first certificate of a file, in DER."""
    text = file.read_text()
    begin, end = text.find(PEM[0]), text.find(PEM[1])
    if begin < 0 or end < begin:
        raise QtideError(f"{file} has no certificate")
    return ssl.PEM_cert_to_DER_cert(text[begin:end] + PEM[1])


PEM = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def admission_api(service: Service, _: Authenticator) -> Api | None:
    """Make the API, which has one route; None unless Slurm admits jobs."""
    if service.configuration.slurm is None:
        return None
    admission = JobAdmission(service, service.configuration.slurm)
    service.operations.withhold = admission.licences.withhold_drained
    responses = refusals(401, 403, 413, 429, 503)
    router = APIRouter(prefix="/v1", responses=responses, tags=["admission"])

    @router.post("/admission")
    async def admit(request: HttpRequest) -> Admitted:
        """For a job's prolog: `Authorization: Munge CREDENTIAL`, body `{"job": NUMBER}`.

        On clusters without munge: `Authorization: Slurm PROOF`.
        """
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() not in admission.schemes:
            known = " or ".join(f"{each.capitalize()} PROOF" for each in admission.schemes)
            raise Unproven(f"admission takes a proof of the job's user: Authorization: {known}")
        connection = request.scope.get(KEY)
        uid = None if connection is None else await connection.local_uid()
        peer = f"uid {uid}" if uid is not None else connection.peer.name if connection else "a peer"
        body = await read_body(request)
        proved = AdmissionRequest("POST", request.url.path, body, admission.audiences)
        try:
            return await admission.admit(credential, proved, peer, scheme.lower())
        except (Refused, QuotaExceeded) as error:
            service.audit.refused("admission refused", peer, str(error))
            raise

    return Api("/v1/admission", router, public=["/v1/admission"], life=admission.life)
