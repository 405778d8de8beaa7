from __future__ import annotations

import asyncio

import pytest

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.licences import Licences
from qtide.core.errors import QtideError, UsageError
from tests.backends.slurm.stage import until
from tests.service.admission.site import Site
from tests.service.admission.users import User


@pytest.fixture
def licences(site: Site) -> Licences:
    return Licences(site.slurm)


def withhold(licences: Licences, number: int) -> None:
    asyncio.run(licences.withhold(number))


def withheld(licences: Licences) -> tuple[int, int]:
    return asyncio.run(licences.withheld()), asyncio.run(licences.total())


def waits_for_licences(site: Site, job: int) -> bool:
    return site.say("squeue", "-h", f"--jobs={job}", "-o", "%T %r").strip() == "PENDING Licenses"


def test_while_a_device_drains_running_jobs_keep_theirs_and_new_ones_wait(
    site: Site, licences: Licences
) -> None:
    user = User("nobody")
    runs = site.start(user, "--licenses=qpu:1")
    withhold(licences, 2)
    try:
        assert withheld(licences) == (2, 2)
        new = site.submit(user, "--licenses=qpu:1")
        slotless = site.start(user)
        assert until(lambda: waits_for_licences(site, new))
        assert [site.state(job) for job in (runs, slotless)] == ["RUNNING", "RUNNING"]
        assert site.admit(user, runs).job == runs
    finally:
        withhold(licences, 0)
    assert until(lambda: site.state(new) == "RUNNING")
    assert withheld(licences) == (0, 2)


def test_some_may_be_withheld(site: Site, licences: Licences) -> None:
    user = User.own()
    withhold(licences, 2)
    try:
        first, second = (site.submit(user, "--licenses=qpu:1") for _ in range(2))
        assert until(lambda: waits_for_licences(site, first))
        withhold(licences, 1)
        assert until(lambda: site.state(first) == "RUNNING")
        assert until(lambda: waits_for_licences(site, second))
        site.say("scancel", "--full", str(first))
        assert until(lambda: site.state(second) == "RUNNING")
        assert withheld(licences) == (1, 2)
    finally:
        withhold(licences, 0)


@pytest.mark.parametrize(
    ("drained", "remaining", "number"),
    [
        (16, 0, 2),  # the only device
        (16, 16, 0),  # another device alone can serve all jobs that Slurm admits
        (1, 1, 1),  # as many licences as slots
        (2, 1, 1),
        (0, 1, 0),  # nothing is drained
    ],
)
def test_licences_of_other_devices_stay_available(
    licences: Licences, drained: int, remaining: int, number: int
) -> None:
    try:
        asyncio.run(licences.withhold_drained(drained, remaining))
        assert withheld(licences) == (number, 2)
    finally:
        withhold(licences, 0)


def test_twice_is_once(licences: Licences) -> None:
    for number in (0, 1, 1, 0, 0):
        withhold(licences, number)
        assert withheld(licences) == (number, 2)


@pytest.mark.parametrize("number", [-1, 3])
def test_there_are_only_so_many(licences: Licences, number: int) -> None:
    with pytest.raises(UsageError, match=f"of 2 licences qpu, {number} cannot be withheld"):
        withhold(licences, number)


def test_a_licence_that_slurm_does_not_have_is_named(site: Site) -> None:
    with pytest.raises(UsageError, match="Slurm has no licence qubit"):
        withhold(Licences(site.slurm, "qubit"), 1)


def test_what_others_have_reserved_stays_theirs(site: Site, licences: Licences) -> None:
    terms = ("starttime=now", "duration=60", "users=root", "flags=any_nodes")
    site.say("scontrol", "create", "reservation=theirs", "licenses=qpu:1", *terms)
    try:
        with pytest.raises(QtideError, match="licences that are not reserved otherwise"):
            withhold(licences, 2)
        withhold(licences, 1)
        withhold(licences, 0)
        assert "Licenses=qpu:1" in site.say("scontrol", "-o", "show", "reservation", "theirs")
    finally:
        site.say("scontrol", "delete", "reservation=theirs")


def test_it_takes_an_operator(site: Site) -> None:
    class AsNobody(Slurm):
        async def output(self, *words: str, limit: float = 30.0) -> str:
            return await super().output(*User("nobody").words(*words), limit=limit)

    with pytest.raises(QtideError, match=r"cannot be withheld: .*; it takes a Slurm operator"):
        withhold(Licences(AsNobody(site.conf)), 1)
