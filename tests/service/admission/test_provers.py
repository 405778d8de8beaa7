"""The same attacks on every way to prove a job's user: by munge, and by a Slurm token."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import jwt
import pytest

from qtide.backends.clusters.slurm.prolog import (
    Libmunge,
    binding,
    possession,
    proof_of_token,
    token_signature,
)
from qtide.service.admission import (
    AdmissionRequest,
    Identity,
    Munge,
    Prover,
    Refused,
    Unproven,
)
from qtide.service.identities import SlurmTokens
from tests.service.admission.munged import Munged

HERE = "certificate 1"
REQUEST = AdmissionRequest("POST", "/v1/admission", b'{"job": 7}', frozenset({HERE}))


@dataclass
class Way:
    """A way to prove a user, with its service's side."""

    prover: Prover
    prove: Callable[[bytes], str]
    foreign: Callable[[bytes], str]
    """A proof with the key of another cluster."""
    outdated: Callable[[bytes], str]

    def judged(self, *proofs: str, request: AdmissionRequest = REQUEST) -> Identity:
        async def whole() -> Identity:
            for each in proofs:
                found = await self.prover.verify(each, request)
            return found

        return asyncio.run(whole())


@pytest.fixture(params=["munge", "slurm"])
def way(
    request: pytest.FixtureRequest, munged: Munged, other_munged: Munged, tmp_path: Path
) -> Iterator[Way]:
    if request.param == "munge":
        with closing(Munge(munged.socket, 20.0)) as prover:
            yield Way(
                prover,
                lambda bound: munge(munged, bound),
                lambda bound: munge(other_munged, bound),
                lambda bound: aged(munge(munged, bound, ttl=1)),
            )
        return
    key = tmp_path / "jwt_hs256.key"
    key.write_bytes(secrets.token_bytes(32))
    yield Way(
        SlurmTokens(key),
        lambda bound: proof_of_token(slurm_token(key.read_bytes()), bound),
        lambda bound: proof_of_token(slurm_token(secrets.token_bytes(32)), bound),
        lambda bound: proof_of_token(slurm_token(key.read_bytes(), lasts=-1), bound),
    )


def munge(daemon: Munged, bound: bytes, ttl: int = 60) -> str:
    with closing(Libmunge(str(daemon.socket))) as library:
        return library.encode(bound, ttl)


def aged(credential: str) -> str:
    time.sleep(2.1)
    return credential


def slurm_token(key: bytes, lasts: int = 60, user: str = "", **more: object) -> str:
    """A token as `scontrol token` makes it."""
    now = int(time.time())
    name = user or pwd.getpwuid(os.getuid()).pw_name
    return jwt.encode({"exp": now + lasts, "iat": now, "sun": name} | more, key, "HS256")


def bound(request: AdmissionRequest = REQUEST, audience: str = HERE) -> bytes:
    return binding(request.method, request.path, request.body, audience)


def test_the_user_is_known(way: Way) -> None:
    assert way.judged(way.prove(bound())) == Identity(os.getuid(), os.getgid())


def test_a_replayed_proof_is_refused(way: Way) -> None:
    proof = way.prove(bound())
    with pytest.raises(Unproven, match="was used before"):
        way.judged(proof, proof)


def test_a_forged_proof_is_refused(way: Way) -> None:
    proof = way.prove(bound())
    for at in (len(proof) // 3, len(proof) // 2, len(proof) - 3):
        forged = proof[:at] + ("A" if proof[at] != "A" else "B") + proof[at + 1 :]
        with pytest.raises(Unproven):
            way.judged(forged)
    for garbage in ("", "x", "a.b.c", "a.b.1.c.d", "..1..", "MUNGE:AAAA:", "é" * 9, "a" * 99_999):
        with pytest.raises(Unproven):
            way.judged(garbage)


def test_a_proof_of_another_cluster_is_refused(way: Way) -> None:
    with pytest.raises(Unproven):
        way.judged(way.foreign(bound()))


def test_an_expired_proof_is_refused(way: Way) -> None:
    with pytest.raises(Unproven, match="expired"):
        way.judged(way.outdated(bound()))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, method="PUT"),
        replace(REQUEST, path="/v1/tasks"),
        replace(REQUEST, body=b'{"job": 8}'),
        replace(REQUEST, audiences=frozenset({"certificate 2", "user 0"})),
    ],
)
def test_a_proof_for_another_request_or_service_is_refused(
    way: Way, other: AdmissionRequest
) -> None:
    with pytest.raises(Unproven, match="for another request"):
        way.judged(way.prove(bound()), request=other)


def test_a_token_is_used_at_once_or_never(tmp_path: Path) -> None:
    """Although the Slurm token itself is good for an hour."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    head, claims, signature = slurm_token(b"k" * 32, 3600).split(".")
    moment = str(int(time.time()) - 100)
    code = possession(signature, moment, "nonce", bound())
    with pytest.raises(Unproven, match="too old"):
        asyncio.run(SlurmTokens(key).verify(f"{head}.{claims}.{moment}.nonce.{code}", REQUEST))


@pytest.mark.parametrize("algorithm", ["none", "HS512", "RS256"])
def test_a_token_with_another_algorithm_is_refused(tmp_path: Path, algorithm: str) -> None:
    """Its code is right, since only the key's holder made it; its head is not Slurm's."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    now = int(time.time())
    parts = ({"alg": algorithm}, {"exp": now + 60, "iat": now, "sun": "root"})
    head, claims = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts
    )
    token = f"{head}.{claims}.{token_signature(b'k' * 32, f'{head}.{claims}')}"
    with pytest.raises(Unproven, match="not valid"):
        asyncio.run(SlurmTokens(key).verify(proof_of_token(token, bound()), REQUEST))


def test_a_user_whom_nobody_knows_here_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    proof = proof_of_token(slurm_token(b"k" * 32, user="nosuchuser"), bound())
    with pytest.raises(Refused, match="there is no user 'nosuchuser' here"):
        asyncio.run(SlurmTokens(key).verify(proof, REQUEST))
