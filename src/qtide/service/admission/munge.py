"""The service's side of munge: whose credential it is, and whether it is for this request.

Libmunge blocks until munged answers, so it is called in threads of its own, with a limit.
"""

from __future__ import annotations

import asyncio
import ctypes
import hmac
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from qtide.service.admission.refused import Unproven, Unreachable
from qtide.slurm.prolog.prolog import Libmunge, ProofFailed, binding, free

LIMIT = 5.0
"""Seconds that munged may take."""
THREADS = 4
LONGEST = 4096
"""Characters that a credential of ours never has."""

FAULTS = {1, 5, 6, 7}
"""Libmunge's own codes for: internal error, no memory, no munged, no answer in time."""

WHY = {15: "has expired", 16: "is from the future: compare the clocks", 17: "was used before"}
"""The codes that a user can act on; all others count as forgeries."""


@dataclass(frozen=True)
class Request:
    """The request that a credential is bound to, as received."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Identity:
    """Who made a credential, according to a munged that shares our key."""

    uid: int
    gid: int


class Munge:
    """A munged, by its socket; None is the system's default."""

    def __init__(self, socket: Path | None = None, limit: float = LIMIT) -> None:
        self._socket = str(socket) if socket else None
        self._limit = limit
        self._threads = ThreadPoolExecutor(THREADS, "munge")

    async def verify(self, credential: str, request: Request) -> Identity:
        """Who sends this request; a credential is good for one request, once."""
        identity, payload = await self.decode(credential)
        if not hmac.compare_digest(payload, binding(request.method, request.path, request.body)):
            raise Unproven("the credential was made for another request; make one for this")
        return identity

    async def decode(self, credential: str) -> tuple[Identity, bytes]:
        """Who made a credential, and its payload."""
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
        """End the threads; one that waits for munged is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _decode(self, credential: str) -> tuple[Identity, bytes]:
        with closing(Libmunge(self._socket)) as munge:
            return _decoded(munge, credential.encode())


def _decoded(munge: Libmunge, credential: bytes) -> tuple[Identity, bytes]:
    """Libmunge returns the payload even of a bad credential: only the code decides."""
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
