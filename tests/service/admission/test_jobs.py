from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.queue import QueueEntry
from qtide.service.admission import Holder, Refused, SlotJobs, SlurmJob, Unreachable
from tests.backends.slurm.stage import until
from tests.service.admission.site import Site
from tests.service.admission.users import User

PLAIN = QueueEntry(7, "RUNNING", 1, 1700000000.0, leader=7, uid=1000, gres="gres:qpu:1")


def job_of(entry: QueueEntry) -> SlurmJob:
    return SlurmJob.of(entry, {"qpu"})


def test_a_job_of_2205() -> None:
    job = job_of(PLAIN)
    assert (job.slots, job.holds, job.holder) == (1, True, Holder(7, 1700000000))


def test_the_shapes_of_newer_versions() -> None:
    for gres in ("gres/qpu:1", "gres/qpu=1"):
        assert job_of(replace(PLAIN, gres=gres)).slots == 1
    assert job_of(replace(PLAIN, gres="N/A", licences="qpu@site:2")).slots == 2


@pytest.mark.parametrize("state", ["PENDING", "COMPLETING", "COMPLETED", "REQUEUED"])
def test_a_job_that_does_not_run_holds_nothing(state: str) -> None:
    assert not job_of(replace(PLAIN, state=state)).holds


def test_a_suspended_job_will_continue() -> None:
    assert job_of(replace(PLAIN, state="SUSPENDED")).holds


def jobs_of(site: Site, job: int) -> list[SlurmJob]:
    return asyncio.run(SlotJobs(site.slurm).of(job))


def holding(site: Site, holders: set[Holder]) -> set[Holder]:
    return asyncio.run(SlotJobs(site.slurm).holding(holders))


@pytest.mark.parametrize("option", ["--licenses=qpu:2", "--gres=qpu:2"])
def test_a_running_job(site: Site, option: str) -> None:
    user = User.own()
    (job,) = jobs_of(site, site.start(user, option))
    assert (job.entry.uid, job.entry.state, job.entry.names, job.slots) == (
        user.uid,
        "RUNNING",
        "q1",
        2,
    )


def test_an_unknown_job(site: Site) -> None:
    assert jobs_of(site, 4_000_000) == []


def test_elements_of_an_array_are_jobs(site: Site) -> None:
    first = site.submit(User.own(), "--array=1-2", "--licenses=qpu:1")
    assert until(lambda: len(site.say("squeue", "-h", "-t", "R").splitlines()) == 2)
    numbers = [int(word) for word in site.say("squeue", "-h", "-o", "%A").split()]
    assert first in numbers
    for number in numbers:
        assert [(each.entry.job, each.slots) for each in jobs_of(site, number)] == [(number, 1)]


def test_components_of_a_heterogeneous_job_are_found_by_any_of_them(site: Site) -> None:
    first = site.start_in_two_parts(User.own())
    for number, other in ((first, first + 1), (first + 1, first)):
        parts = jobs_of(site, number)
        assert [each.entry.job for each in parts] == [number, other]
        assert {each.entry.job for each in parts if each.holds} == {first + 1}


def test_no_text_that_a_user_sets_gives_a_slot(site: Site) -> None:
    line = "9|9|RUNNING|0|1|1|q1|gres:qpu:1|qpu:1|y"
    job = site.start(
        User.own(),
        f"--account=x\n{line}",
        "--job-name=n Licenses=qpu:1 TresPerNode=gres:qpu:1",
        f"--comment=c\n{line}",
    )
    (found,) = jobs_of(site, job)
    assert (found.entry.job, found.slots, found.holds) == (job, 0, False)


def test_a_job_cannot_take_a_slot_while_it_runs(site: Site) -> None:
    user = User("nobody")
    job = site.start(user)
    for change in ("Licenses=qpu:1", "Gres=qpu:1", "TresPerNode=gres:qpu:1"):
        site.run(user, "scontrol", "update", f"JobId={job}", change, check=False)
    assert [each.slots for each in jobs_of(site, job)] == [0]


def test_which_jobs_still_hold_a_slot(site: Site) -> None:
    user = User.own()
    lasting, ending = (site.start(user, "--licenses=qpu:1") for _ in range(2))
    slotless = site.start(user)
    holders = {n: jobs_of(site, n)[0].holder for n in (lasting, ending, slotless)}
    never = Holder(4_000_000, 1)
    site.say("scancel", "--full", str(ending))
    wanted = {holders[lasting]}
    assert until(lambda: holding(site, {*holders.values(), never}) == wanted)
    assert holding(site, set()) == set()


def test_a_job_that_is_suspended_keeps_its_slot(site: Site) -> None:
    job = site.start(User("nobody"), "--licenses=qpu:1")
    holder = jobs_of(site, job)[0].holder
    site.say("scontrol", "suspend", str(job))
    assert site.state(job) == "SUSPENDED" and holding(site, {holder}) == {holder}
    site.say("scontrol", "resume", str(job))
    assert site.state(job) == "RUNNING" and holding(site, {holder}) == {holder}


def test_a_slot_that_was_given_back_is_no_longer_held(site: Site) -> None:
    user = User("nobody")
    job = site.start(user, "--licenses=qpu:1")
    holder = jobs_of(site, job)[0].holder
    assert holding(site, {holder}) == {holder}
    site.run(user, "scontrol", "update", f"JobId={job}", "Licenses=")
    assert holding(site, {holder}) == set()


def test_a_job_that_starts_again_is_another_holder(site: Site) -> None:
    job = site.start(User.own(), "--licenses=qpu:1", "--requeue")
    before = jobs_of(site, job)[0].holder
    site.say("scontrol", "requeue", str(job))
    gone = time.time()
    assert until(lambda: site.state(job) == "PENDING")
    assert holding(site, {before}) == set()
    assert until(
        lambda: time.time() > gone + 2
    )  # Slurm revokes credentials with a resolution of one second
    assert until(lambda: hurried(site, job) == "RUNNING")
    after = jobs_of(site, job)[0].holder
    assert after.job == before.job and after != before
    assert holding(site, {before, after}) == {after}


def hurried(site: Site, job: int) -> str:
    """Slurm delays a requeued job for two minutes, at a moment it chooses."""
    state, reason = site.say("squeue", "-h", "--states=all", f"--jobs={job}", "-o", "%T %r").split()
    if reason == "BeginTime":
        site.say("scontrol", "update", f"JobId={job}", "StartTime=now")
    return state


def test_all_tasks_of_a_step_ask_slurm_once(site: Site) -> None:
    job = site.start(User.own(), "--licenses=qpu:1")
    counting = Counting(site.conf)

    async def scene() -> list[list[SlurmJob]]:
        jobs = SlotJobs(counting)
        return await asyncio.gather(*(jobs.of(job) for _ in range(50)))

    answers = asyncio.run(scene())
    assert len(answers) == 50 and all(each == answers[0] for each in answers)
    assert counting.asked == 1


class Counting(Slurm):
    """Counts the queries to slurmctld."""

    asked = 0

    async def output(self, *words: str, limit: float = 30.0) -> str:
        self.asked += 1
        return await super().output(*words, limit=limit)


def test_no_slurmctld_is_no_admission(tmp_path: Path, packages: None) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n"
        "NodeName=c1\nPartitionName=p Nodes=c1\n"
    )
    with pytest.raises(Unreachable, match="Slurm does not answer queries about jobs") as caught:
        asyncio.run(SlotJobs(Slurm(conf), limit=1.0).of(7))
    assert not isinstance(caught.value, Refused)
    with pytest.raises(Unreachable):
        asyncio.run(SlotJobs(Slurm(conf), limit=1.0).holding([Holder(7, 1)]))
