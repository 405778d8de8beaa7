from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from qtide.backends.clusters.slurm.commands import Slurm, munge_socket_of
from qtide.backends.clusters.slurm.prolog import Libmunge, ProofFailed, binding
from qtide.service.admission import (
    AdmissionRequest,
    Identity,
    Munge,
    Refused,
    Unproven,
    Unreachable,
)
from tests.service.admission.munged import Munged
from tests.service.admission.users import User

T = TypeVar("T")
HERE = "user 7"
REQUEST = AdmissionRequest("POST", "/v1/admission", b'{"job": 7}', frozenset({HERE, "user 0"}))
requests = st.builds(
    AdmissionRequest,
    st.sampled_from(["GET", "POST", "PUT"]),
    st.text(),
    st.binary(),
    st.just(REQUEST.audiences),
)


def play(daemon: Munged | Path, scene: Callable[[Munge], Awaitable[T]], limit: float = 20.0) -> T:
    """Run a scenario with the service's side of munge."""

    async def whole() -> T:
        with closing(
            Munge(daemon.socket if isinstance(daemon, Munged) else daemon, limit)
        ) as munge:
            return await scene(munge)

    return asyncio.run(whole())


def credential(
    daemon: Munged, request: AdmissionRequest = REQUEST, ttl: int = 60, audience: str = HERE
) -> str:
    return encoded(daemon, binding(request.method, request.path, request.body, audience), ttl)


def encoded(daemon: Munged, payload: bytes, ttl: int = 60) -> str:
    with closing(Libmunge(str(daemon.socket))) as munge:
        return munge.encode(payload, ttl)


@given(payload=st.binary(max_size=500))
def test_the_user_who_made_a_credential_is_known(munged: Munged, payload: bytes) -> None:
    made = encoded(munged, payload)
    own = User.own()
    assert play(munged, lambda munge: munge.decode(made)) == (Identity(own.uid, own.gid), payload)


@pytest.mark.parametrize("name", ["nobody", "daemon"])
def test_another_user_is_another_user(munged: Munged, name: str) -> None:
    user = User(name)
    made = user.credential(munged.socket, binding("POST", "/v1/admission", REQUEST.body, HERE))
    found = play(munged, lambda munge: munge.verify(made, REQUEST))
    assert found == Identity(user.uid, user.gid)


def test_a_credential_is_valid_once(munged: Munged) -> None:
    made = credential(munged)

    async def scene(munge: Munge) -> None:
        await munge.verify(made, REQUEST)
        with pytest.raises(Unproven, match="was used before"):
            await munge.verify(made, REQUEST)

    play(munged, scene)


def test_of_many_concurrent_uses_one_is_admitted(munged: Munged) -> None:
    made = credential(munged)

    async def scene(munge: Munge) -> list[Identity | BaseException]:
        tries = (munge.verify(made, REQUEST) for _ in range(20))
        return await asyncio.gather(*tries, return_exceptions=True)

    outcomes = play(munged, scene)
    assert sum(isinstance(each, Identity) for each in outcomes) == 1
    assert sum(isinstance(each, Unproven) for each in outcomes) == 19


@given(one=requests, other=requests)
def test_a_credential_is_bound_to_its_request(
    munged: Munged, one: AdmissionRequest, other: AdmissionRequest
) -> None:
    assume(one != other)
    with pytest.raises(Unproven, match="made for another request"):
        play(munged, lambda munge: munge.verify(credential(munged, one), other))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, method="PUT"),
        replace(REQUEST, path="/v1/admission/"),
        replace(REQUEST, body=b'{"job": 8}'),
        replace(REQUEST, path=REQUEST.path + '{"job"', body=b": 7}"),
        replace(REQUEST, audiences=frozenset({"user 8", "certificate 7"})),
    ],
)
def test_nothing_of_a_request_can_be_changed(munged: Munged, other: AdmissionRequest) -> None:
    with pytest.raises(Unproven, match="made for another request"):
        play(munged, lambda munge: munge.verify(credential(munged), other))


def test_a_credential_of_an_old_prolog_names_no_service(munged: Munged) -> None:
    old = credential(munged, audience="")
    with pytest.raises(Unproven, match="its prolog is older than this service"):
        play(munged, lambda munge: munge.verify(old, REQUEST))


def test_an_old_credential_is_refused(munged: Munged) -> None:
    made = credential(munged, ttl=1)
    time.sleep(2.1)  # munge counts whole seconds
    with pytest.raises(Unproven, match="has expired"):
        play(munged, lambda munge: munge.verify(made, REQUEST))


def test_a_credential_under_another_key_is_refused(munged: Munged, other_munged: Munged) -> None:
    with pytest.raises(Unproven, match="not made by our munge"):
        play(munged, lambda munge: munge.verify(credential(other_munged), REQUEST))


@given(text=st.text() | st.binary().map(lambda data: f"MUNGE:{data.hex()}:"))
def test_garbage_is_refused(munged: Munged, text: str) -> None:
    with pytest.raises(Unproven):
        play(munged, lambda munge: munge.verify(text, REQUEST))


@given(place=st.integers(min_value=0), character=st.characters(codec="ascii", categories=["L"]))
def test_a_modified_credential_is_refused(munged: Munged, place: int, character: str) -> None:
    made = credential(munged)
    at = len("MUNGE:") + place % (len(made) - len("MUNGE:") - 5)
    forged = made[:at] + character + made[at + 1 :]
    assume(forged != made)
    with pytest.raises(Unproven):
        play(munged, lambda munge: munge.verify(forged, REQUEST))


def test_no_munged_is_no_admission(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="munged does not answer"):
        play(tmp_path / "none", lambda munge: munge.verify("MUNGE:AAAA:", REQUEST))


def test_a_munged_that_hangs_is_not_waited_for(other_munged: Munged) -> None:
    made = credential(other_munged)
    other_munged.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
            play(other_munged, lambda munge: munge.verify(made, REQUEST), limit=0.2)
    finally:
        other_munged.process.send_signal(signal.SIGCONT)
    assert not isinstance(caught.value, Refused)


def test_without_munge_no_credential_is_made(tmp_path: Path) -> None:
    with closing(Libmunge(str(tmp_path / "none"))) as munge, pytest.raises(ProofFailed):
        munge.encode(b"")


@pytest.mark.parametrize(
    ("text", "socket"),
    [
        ("ClusterName=x\nAuthInfo=socket=/run/own\n", Path("/run/own")),
        ("authinfo = cred_expire=60,socket=/run/own,ttl=9 # why", Path("/run/own")),
        ("# AuthInfo=socket=/run/old\nClusterName=x\n", None),
    ],
)
def test_the_munged_is_the_one_that_slurm_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, socket: Path | None
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(text)
    assert munge_socket_of(Slurm(conf)) == socket
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert munge_socket_of(Slurm()) is None
    monkeypatch.setenv("SLURM_CONF", str(conf))
    assert munge_socket_of(Slurm()) == socket
