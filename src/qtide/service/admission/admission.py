"""Who may use a virtual QPU: a user who proves by munge to own a running job that holds a slot.

The job's environment is not trusted, and there is no list of users: munge says who is asking, and
slurmctld what the job holds.
"""

from __future__ import annotations

import asyncio
import json
import pwd
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from qtide.service.admission.jobs import Holder, Jobs, SlurmJob
from qtide.service.admission.munge import Identity, Munge, Request, socket_of
from qtide.service.admission.refused import Refused, Unproven, Unreachable
from qtide.slurm import slots
from qtide.slurm.commands import Slurm

__all__ = ["Grant", "Holder", "Refused", "Request", "SlurmAdmission", "Unproven", "Unreachable"]

LIMIT = 5.0
"""Seconds within which munged, slurmctld and the user database each have to answer."""


@dataclass(frozen=True)
class Grant:
    """What a token may be made of."""

    user: str
    account: str
    """Empty if Slurm knows of none."""
    job: int
    holder: Holder
    """The job or component that has the slot: when it ends or gives it back, the grant ends."""


class SlurmAdmission:
    """Admission by one cluster's slurmctld and munged."""

    def __init__(
        self,
        conf: Path | None = None,
        munge_socket: Path | None = None,
        names: Collection[str] = slots.NAMES,
        limit: float = LIMIT,
    ) -> None:
        self._limit = limit
        slurm = Slurm(conf)
        slurm.check()
        self._munge = Munge(munge_socket or socket_of(slurm), limit)
        self._jobs = Jobs(slurm, names, limit)

    async def admit(self, credential: str, request: Request) -> Grant:
        """Admit the sender of a request; `Refused` says why not, `Unreachable` to try again."""
        identity = await self._munge.verify(credential, request)
        job = _job_of(request)
        own, *others = _owned(await self._jobs.of(job), identity, job)
        holder = next((part for part in (own, *others) if part.holds), None)
        if holder is None:
            raise Refused(
                f"job {job} holds no slot of a QPU; ask for one when you submit it: "
                "--licenses=qpu:1 or --gres=qpu:1, as your site has it"
            )
        return self._grant(own, holder, await self._user(identity))

    async def running(self, holders: Iterable[Holder]) -> set[Holder]:
        """Those of the holders that still run and have their slot."""
        return await self._jobs.holding(holders)

    def close(self) -> None:
        """End the threads of admission."""
        self._munge.close()

    def _grant(self, own: SlurmJob, holder: SlurmJob, user: str) -> Grant:
        entry = own.entry
        if not entry.account.isprintable():
            raise Refused(f"job {entry.job} has an account that cannot be written down")
        return Grant(user, entry.account, entry.job, holder.holder)

    async def _user(self, identity: Identity) -> str:
        """In a thread, since it may query a directory service."""
        entry = asyncio.to_thread(pwd.getpwuid, identity.uid)
        try:
            return (await asyncio.wait_for(entry, self._limit)).pw_name
        except KeyError:
            raise Refused(
                f"there is no user with the uid {identity.uid} here; tell the operator"
            ) from None
        except TimeoutError:
            raise Unreachable(
                f"the user database gave no answer within {self._limit:g} s"
            ) from None


def _job_of(request: Request) -> int:
    """The body is {"job": NUMBER}."""
    try:
        job = json.loads(request.body)["job"]
    except (ValueError, TypeError, KeyError, RecursionError):
        job = None
    if type(job) is not int or not 0 < job < 2**32:
        raise Refused('the body of a request for admission is {"job": NUMBER}')
    return job


def _owned(parts: list[SlurmJob], identity: Identity, job: int) -> list[SlurmJob]:
    """Reveals nothing about other users' jobs; root's credential admits only root's jobs."""
    own = [part for part in parts if part.entry.uid == identity.uid]
    if not own or own[0].entry.job != job or own[0].entry.state != "RUNNING":
        raise Refused(f"job {job} is no running job of yours")
    return own
