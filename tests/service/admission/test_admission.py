from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.clusters.slurm.commands import SlurmFailed
from qtide.box.daemons import daemons
from qtide.service.admission import (
    Grant,
    Holder,
    Refused,
    SlurmAdmission,
    Unproven,
    Unreachable,
)
from tests.backends.slurm.stage import until
from tests.service.admission.site import Site, ask_for
from tests.service.admission.users import User

NO_JOB_OF_YOURS = "is no running job of yours"


@pytest.fixture(params=["nobody", "daemon"])
def user(request: pytest.FixtureRequest) -> User:
    return User(request.param)


@pytest.mark.parametrize("option", ["--licenses=qpu:1", "--gres=qpu:1"])
def test_a_job_that_holds_a_slot_is_admitted(site: Site, user: User, option: str) -> None:
    job = site.start(user, option, "--account=physics")
    grant = site.admit(user, job)
    assert grant == Grant(user.name, "", job, grant.holder)  # Slurm does not check accounts here
    assert grant.holder.job == job and grant.holder.start > 0


def test_each_of_several_jobs_is_admitted_by_itself(site: Site, user: User) -> None:
    with_slot, without = site.start(user, "--licenses=qpu:1"), site.start(user)
    assert site.admit(user, with_slot).job == with_slot
    with pytest.raises(Refused, match=f"job {without} holds no slot of a QPU; ask for one"):
        site.admit(user, without)


def test_one_component_of_a_heterogeneous_job_holds_the_slot_of_all(site: Site) -> None:
    user = User("nobody")
    first = site.start_in_two_parts(user)
    for number in (first, first + 1):
        grant = site.admit(user, number)
        assert (grant.job, grant.holder.job) == (number, first + 1)
    holder = grant.holder
    assert site.play(lambda admission: admission.running([holder])) == {holder}
    site.say("scancel", str(first + 1))
    assert until(lambda: site.play(lambda admission: admission.running([holder])) == set())
    with pytest.raises(Refused, match="holds no slot"):
        site.admit(user, first)


def test_the_job_of_another_user_is_refused(site: Site) -> None:
    job = site.start(User("nobody"), "--licenses=qpu:1")
    for other in (User("daemon"), User.own()):  # our own user is Slurm's: usually root
        with pytest.raises(Refused, match=NO_JOB_OF_YOURS):
            site.admit(other, job)
    with pytest.raises(Refused, match=NO_JOB_OF_YOURS):
        site.admit(User.own(), 4_000_000)  # the answer does not reveal whether there is such a job


def test_a_pending_job_is_not_admitted(site: Site, user: User) -> None:
    job = site.submit(user, "--licenses=qpu:1", "--hold")
    assert site.state(job) == "PENDING"
    with pytest.raises(Refused, match=NO_JOB_OF_YOURS):
        site.admit(user, job)


def test_a_job_that_has_ended_is_not_admitted(site: Site, user: User) -> None:
    job = site.submit(user, "--licenses=qpu:1", command="true")
    assert until(lambda: site.state(job) == "COMPLETED")
    with pytest.raises(Refused, match=NO_JOB_OF_YOURS):
        site.admit(user, job)


def test_a_credential_is_valid_for_one_request_once(site: Site) -> None:
    user = User("nobody")
    job, other = (site.start(user, "--licenses=qpu:1") for _ in range(2))
    request = ask_for(job)

    async def scene(admission: SlurmAdmission) -> None:
        for wrong in (
            ask_for(other),
            replace(request, path="/v1/tasks"),
            replace(request, method="PUT"),
        ):
            with pytest.raises(Unproven, match="another request"):
                await admission.admit(site.proof(user, request), wrong)
        proof = site.proof(user, request)
        assert (await admission.admit(proof, request)).job == job
        with pytest.raises(Unproven, match="used before"):
            await admission.admit(proof, request)

    site.play(scene)


NO_JOB = st.recursive(st.none() | st.floats() | st.text() | st.integers(max_value=0), st.lists)


@settings(max_examples=50)  # each starts a process
@given(body=st.binary() | NO_JOB.map(lambda job: ask_for(job).body))
def test_a_body_that_names_no_job_is_refused(whole_site: Site, body: bytes) -> None:
    request = replace(ask_for(7), body=body)
    proof = whole_site.proof(User.own(), request)
    with pytest.raises(Refused, match=r'is \{"job": NUMBER\}'):
        whole_site.play(lambda admission: admission.admit(proof, request))


def test_a_user_without_a_name_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask_for(site.start(User.own(), "--licenses=qpu:1"))
    proof = site.proof(User.own(), request)

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("qtide.service.admission.pwd.getpwuid", unknown)
    with pytest.raises(Refused, match=f"there is no user with the uid {os.getuid()}"):
        site.play(lambda admission: admission.admit(proof, request))


def test_an_account_that_no_log_can_hold_is_refused(site: Site) -> None:
    user = User("nobody")
    job = site.start(user, "--licenses=qpu:1", "--account=x\ny")
    with pytest.raises(Refused, match="an account that cannot be written down"):
        site.admit(user, job)


@pytest.fixture
def deaf(site: Site) -> Iterator[None]:
    """A slurmctld that does not answer."""
    (pid,) = (pid for pid, name in daemons(site.folder).items() if name == "slurmctld")
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def test_while_slurmctld_does_not_answer_no_job_is_admitted(site: Site, deaf: None) -> None:
    request = ask_for(7)
    proof = site.proof(User.own(), request)

    async def scene() -> None:
        with closing(SlurmAdmission(site.conf, limit=0.5)) as admission:
            with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
                await admission.admit(proof, request)
            with pytest.raises(Unreachable):
                await admission.running([Holder(7, 1)])

    asyncio.run(scene())


def test_a_missing_cluster_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlurmFailed, match="which does not exist"):
        SlurmAdmission(tmp_path / "slurm.conf")
