"""Who may use a virtual QPU: a user who proves by munge to own a running job that holds a slot.

The job's environment is not trusted, and there is no list of users: munge says who is asking, and
slurmctld what the job holds.
"""

from __future__ import annotations

import asyncio
import json
import pwd
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from qtide.service.admission.jobs import AT_ONCE, Holder, Jobs, SlurmJob
from qtide.service.admission.munge import THREADS, Identity, Munge, Request
from qtide.service.admission.refused import Refused, Unproven, Unreachable
from qtide.service.limits.turns import Turns
from qtide.slurm import slots
from qtide.slurm.associations import accounts_are_checked
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.entry import munge_socket_of
from qtide.world.real import RealWorld

__all__ = ["Grant", "Holder", "Refused", "Request", "SlurmAdmission", "Unproven", "Unreachable"]

LIMIT = 5.0
"""Seconds within which munged, slurmctld and the user database each have to answer."""
WAITING = 256
"""Requests of one peer or user that wait for their turn."""
FRESH = 60.0
"""Seconds after which Slurm is asked again whether it checks accounts."""


@dataclass(frozen=True)
class Grant:
    """What a token may be made of."""

    user: str
    account: str
    """Empty if Slurm knows of none, or does not check who may use which."""
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
        *,
        waiting: int = WAITING,
        trust_accounts: bool = False,
    ) -> None:
        self._limit = limit
        self._slurm = slurm = Slurm(conf)
        slurm.check()
        self._munge = Munge(munge_socket or munge_socket_of(slurm), limit)
        self._jobs = Jobs(slurm, names, limit)
        self._trust_accounts = trust_accounts
        self._checked = (-FRESH, False)
        world = RealWorld()
        self._decoding = Turns(world, THREADS, THREADS - 1, waiting)
        self._asking = Turns(world, AT_ONCE - 1, (AT_ONCE - 1) // 2, waiting)

    async def admit(self, credential: str, request: Request, peer: str = "a peer") -> Grant:
        """Admit the sender of a request; `Refused` says why not, `Unreachable` to try again.

        Peers take turns at munge, and users at Slurm: whoever asks often delays nobody else.
        """
        job = _job_of(request)
        async with self._decoding.turn(peer):
            identity = await self._munge.verify(credential, request)
        async with self._asking.turn(f"uid {identity.uid}"):
            parts = await self._jobs.of(job)
        own, *others = _owned(parts, identity, job)
        holder = next((part for part in (own, *others) if part.holds), None)
        if holder is None:
            raise Refused(
                f"job {job} holds no slot of a QPU; ask for one when you submit it: "
                "--licenses=qpu:1 or --gres=qpu:1, as your site has it"
            )
        return await self._grant(own, holder, await self._user(identity))

    async def running(self, holders: Iterable[Holder]) -> set[Holder]:
        """Those of the holders that still run and have their slot."""
        return await self._jobs.holding(holders)

    def close(self) -> None:
        """End the threads of admission."""
        self._munge.close()

    async def _grant(self, own: SlurmJob, holder: SlurmJob, user: str) -> Grant:
        entry = own.entry
        if not entry.account.isprintable():
            raise Refused(f"job {entry.job} has an account that cannot be written down")
        account = entry.account if await self._accounts_count() else ""
        return Grant(user, account, entry.job, holder.holder)

    async def _accounts_count(self) -> bool:
        """Whether a job's account is more than what its user typed."""
        if self._trust_accounts:
            return True
        asked, found = self._checked
        if time.monotonic() - asked > FRESH:
            try:
                found = await accounts_are_checked(self._slurm, self._limit)
            except SlurmFailed as error:
                raise Unreachable(f"Slurm does not tell its settings: {error}") from None
            self._checked = (time.monotonic(), found)
        return found

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
