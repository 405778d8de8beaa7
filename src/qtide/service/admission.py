"""Admission to a virtual QPU, for a user with munge's proof who owns a running job with a slot.

The job's environment is not trusted, and there is no list of users: munge tells who is asking, and
slurmctld what the job holds.
"""

from __future__ import annotations

import asyncio
import ctypes
import hmac
import json
import pwd
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qtide.backends.clusters.slurm import queue
from qtide.backends.clusters.slurm.commands import (
    Slurm,
    SlurmFailed,
    accounts_are_checked,
    munge_socket_of,
)
from qtide.backends.clusters.slurm.licences import SLOT_NAMES, slots_held
from qtide.backends.clusters.slurm.prolog import Libmunge, ProofFailed, binding, free
from qtide.backends.clusters.slurm.queue import QueueEntry
from qtide.core.errors import QtideError
from qtide.core.world.real import RealWorld
from qtide.service.limits import FairSemaphore


class Refused(QtideError):  # noqa: N818 - named after what happened
    """The job has no right to a QPU (HTTP 403)."""


class Unproven(Refused):
    """The credential is forged, replayed, expired, or made for another request (HTTP 401)."""


class Unreachable(QtideError):  # noqa: N818 - named after what happened
    """Munge or Slurm does not answer; the caller should try again (HTTP 503)."""


LIMIT = 5.0
"""Seconds that munged, slurmctld and the user database each have to answer."""
THREADS = 4
LONGEST = 4096
"""Maximum length of a credential in characters; ours are shorter."""

FAULTS = {1, 5, 6, 7}
"""Libmunge's codes for an internal error, no memory, no munged, and a timeout."""

WHY = {15: "has expired", 16: "is from the future: compare the clocks", 17: "was used before"}
"""Libmunge's codes that a user can act on; all others count as forgeries."""
AT_ONCE = 8
"""Maximum number of concurrent queries to slurmctld, which has other work to do."""

ALIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States of a job that has started and whose processes will continue."""
WAITING = 256
"""Maximum number of requests of one peer or user that wait for their turn."""
FRESH = 60.0
"""Seconds to remember whether Slurm checks accounts."""


@dataclass(frozen=True)
class AdmissionRequest:
    """The request, as received, that a credential must be bound to."""

    method: str
    path: str
    body: bytes
    audiences: frozenset[str] = frozenset()
    """What this service is known by: a credential has to name one of them."""


@dataclass(frozen=True)
class Identity:
    """The maker of a credential, according to a munged that shares our key."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Holder:
    """A job or heterogeneous component; its start time tells it from a requeued run."""

    job: int
    start: int


@dataclass(frozen=True)
class Grant:
    """What an admitted job's token is issued for."""

    user: str
    account: str
    """Empty if Slurm knows none, or does not check who may use which account."""
    job: int
    holder: Holder
    """The job or component with the slot; the grant ends when it ends or returns the slot."""


class Prover(Protocol):
    """Proves who sends a request for admission."""

    async def verify(self, credential: str, request: AdmissionRequest) -> Identity:
        """Identify the sender; raises `Unproven`, or `Unreachable` to try again."""


class SlurmAdmission:
    """Admission by one cluster's slurmctld and munged."""

    def __init__(
        self,
        conf: Path | None = None,
        munge_socket: Path | None = None,
        names: Collection[str] = SLOT_NAMES,
        limit: float = LIMIT,
        *,
        waiting: int = WAITING,
        trust_accounts: bool = False,
    ) -> None:
        self._limit = limit
        self._slurm = slurm = Slurm(conf)
        slurm.check()
        self._munge = Munge(munge_socket or munge_socket_of(slurm), limit)
        self._provers: dict[str, Prover] = {"munge": self._munge}
        self._jobs = SlotJobs(slurm, names, limit)
        self._trust_accounts = trust_accounts
        self._checked = (-FRESH, False)
        world = RealWorld()
        self._decoding = FairSemaphore(world, "proofs", THREADS - 1, THREADS, waiting)
        self._asking = FairSemaphore(world, "questions", (AT_ONCE - 1) // 2, AT_ONCE - 1, waiting)

    def add_prover(self, scheme: str, prover: Prover) -> None:
        """Also admit jobs that prove their user in another way."""
        self._provers[scheme] = prover

    @property
    def schemes(self) -> list[str]:
        """The schemes of authorization by which jobs can prove their user."""
        return sorted(self._provers)

    async def admit(
        self,
        credential: str,
        request: AdmissionRequest,
        peer: str = "a peer",
        scheme: str = "munge",
    ) -> Grant:
        """Admit the sender of a request, or raise `Refused` or, to try again, `Unreachable`.

        Peers take turns at munge and users at Slurm, so frequent callers delay nobody else.
        """
        job = _job_of(request)
        async with self._decoding.turn(peer):
            identity = await self._provers[scheme].verify(credential, request)
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

    @property
    def queries(self) -> int:
        """How often Slurm was asked for jobs."""
        return self._jobs.queries

    async def running(self, holders: Iterable[Holder]) -> set[Holder]:
        """The holders that still run and still have their slot."""
        return await self._jobs.holding(holders)

    def close(self) -> None:
        """End the munge threads."""
        self._munge.close()

    async def _grant(self, own: SlurmJob, holder: SlurmJob, user: str) -> Grant:
        entry = own.entry
        if not entry.account.isprintable():
            raise Refused(f"job {entry.job} has an account that cannot be written down")
        account = entry.account if await self._accounts_count() else ""
        return Grant(user, account, entry.job, holder.holder)

    async def _accounts_count(self) -> bool:
        """Whether to believe a job's account: Slurm checks it, or the operator trusts it."""
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
        """Look up the user's name, in a thread since that may query a directory service."""
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


def _job_of(request: AdmissionRequest) -> int:
    """The job number in a request body of the form {"job": NUMBER}."""
    try:
        job = json.loads(request.body)["job"]
    except (ValueError, TypeError, KeyError, RecursionError):
        job = None
    if type(job) is not int or not 0 < job < 2**32:
        raise Refused('the body of a request for admission is {"job": NUMBER}')
    return job


def _owned(parts: list[SlurmJob], identity: Identity, job: int) -> list[SlurmJob]:
    """The caller's parts of a running job; refuse without revealing other users' jobs.

    Root's credential admits only root's jobs.
    """
    own = [part for part in parts if part.entry.uid == identity.uid]
    if not own or own[0].entry.job != job or own[0].entry.state != "RUNNING":
        raise Refused(f"job {job} is no running job of yours")
    return own


@dataclass(frozen=True)
class SlurmJob:
    """A job or a component of one, with the number of slots it holds."""

    entry: QueueEntry
    slots: int

    @staticmethod
    def of(entry: QueueEntry, names: Collection[str]) -> SlurmJob:
        """Count an entry's slots: licences or GRES with one of these names."""
        return SlurmJob(entry, slots_held(entry.licences, entry.gres, entry.nodes, names))

    @property
    def holder(self) -> Holder:
        """It as a holder of slots."""
        return Holder(self.entry.job, int(self.entry.start or 0))

    @property
    def holds(self) -> bool:
        """Whether it has started, has not ended, and holds a slot."""
        return self.entry.state in ALIVE and self.slots > 0


class SlotJobs:
    """Queries about the jobs of one cluster and their slots."""

    def __init__(
        self, slurm: Slurm, names: Collection[str] = SLOT_NAMES, limit: float = LIMIT
    ) -> None:
        self._slurm = slurm
        self._names = frozenset(names)
        self._limit = limit
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asked: dict[int, asyncio.Task[list[SlurmJob]]] = {}
        self.queries = 0
        """Calls to Slurm so far."""

    async def of(self, job: int) -> list[SlurmJob]:
        """The job with that number, then its other components; empty if there is none.

        All tasks of a step ask at the same time, so they share one query.
        """
        if job not in self._asked:
            self._asked[job] = asyncio.create_task(self._of(job))
            self._asked[job].add_done_callback(lambda _: self._asked.pop(job))
        return await asyncio.shield(self._asked[job])

    async def holding(self, holders: Iterable[Holder]) -> set[Holder]:
        """The holders that still have a slot; takes a single query."""
        known = set(holders)
        if not known:
            return set()
        found = await self._query("--states=RUNNING,SUSPENDED")
        return known & {each.holder for each in found if each.holds}

    async def _of(self, job: int) -> list[SlurmJob]:
        found = await self._query(f"--jobs={job}")
        own = [each for each in found if each.entry.job == job]
        if own and own[0].entry.leader != job:
            found = await self._query(f"--jobs={own[0].entry.leader}")
        parts = [each for each in found if own and each.entry.leader == own[0].entry.leader]
        return own + [each for each in parts if each.entry.job != job]

    async def _query(self, *terms: str) -> list[SlurmJob]:
        self.queries += 1
        try:
            async with self._at_once:
                found = await queue.entries(self._slurm, *terms, limit=self._limit)
        except SlurmFailed as error:
            raise Unreachable(f"Slurm does not answer queries about jobs: {error}") from None
        return [SlurmJob.of(each, self._names) for each in found]


class Munge:
    """Client of the munged at a socket; None means the system's default."""

    def __init__(self, socket: Path | None = None, limit: float = LIMIT) -> None:
        self._socket = str(socket) if socket else None
        self._limit = limit
        self._threads = ThreadPoolExecutor(THREADS, "munge")

    async def verify(self, credential: str, request: AdmissionRequest) -> Identity:
        """Identify the sender of a request; a credential is valid once, for one request."""
        identity, payload = await self.decode(credential)
        words = (request.method, request.path, request.body)
        good = [binding(*words, audience) for audience in request.audiences]
        if any(hmac.compare_digest(payload, each) for each in good):
            return identity
        if hmac.compare_digest(payload, binding(*words, "")):
            raise Unproven(
                "the credential names no service: its prolog is older than this service; ask the "
                "operator to write it again (qtide prolog)"
            )
        raise Unproven(
            "the credential was made for another request or another service; make one for this"
        )

    async def decode(self, credential: str) -> tuple[Identity, bytes]:
        """The maker of a credential, and its payload."""
        if len(credential) > LONGEST or not (credential.isascii() and credential.isprintable()):
            raise Unproven("the credential was not made by munge")
        work = asyncio.get_running_loop().run_in_executor(self._threads, self._decode, credential)
        try:
            return await asyncio.wait_for(work, self._limit)
        except TimeoutError:
            raise Unreachable(f"munged gave no answer within {self._limit:g} s") from None
        except ProofFailed as failed:
            raise _refusal(failed) from None

    def close(self) -> None:
        """End the threads, without waiting for those that wait for munged."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _decode(self, credential: str) -> tuple[Identity, bytes]:
        with closing(Libmunge(self._socket)) as munge:
            return _decoded(munge, credential.encode())


def _decoded(munge: Libmunge, credential: bytes) -> tuple[Identity, bytes]:
    """Decode a credential; trust only the code, since bad ones also return a payload."""
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    places = [ctypes.byref(each) for each in (payload, length, uid, gid)]
    code = munge.library.munge_decode(credential, munge.context, *places)
    try:
        munge.check(code)
        held = ctypes.string_at(payload.value, length.value) if payload.value else b""
        return Identity(uid.value, gid.value), held
    finally:
        free(payload)


def _refusal(failed: ProofFailed) -> Unproven | Unreachable:
    if failed.code in FAULTS:
        return Unreachable(f"munged does not answer: {failed}")
    return Unproven(
        f"the credential {WHY.get(failed.code, f'was not made by our munge: {failed}')}"
    )
