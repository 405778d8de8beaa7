from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from qtide.backends.clusters.slurm.commands import Slurm, environment
from qtide.backends.clusters.slurm.companion import CompanionOptions, QueuedTooLong, SlurmRefused
from qtide.backends.clusters.slurm.mark import Driver, job_name, qpu_name, reap
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.profile import profile
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.backends.leases.qpu import Lease, Qpu
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import NotEnoughNodes
from qtide.core.job import JobContext
from qtide.core.ledger import Interval
from qtide.strategies.site import Site
from tests.backends.slurm.stage import Stage, run, until

BY_GRES = CompanionOptions(qpu_by="gres")
PAYLOAD = Burst(0.05, 7)
DRIVER = """
import asyncio, sys
from pathlib import Path
from tests.backends.slurm.stage import Stage
from tests.backends.slurm.test_leases import BY_GRES, admitted

async def scene(cluster):
    qpu = admitted(cluster)
    await qpu.lease(stage.job())
    both = await cluster.request(stage.job(), 1, co_allocate=qpu)
    lease = both.take_co_allocated()
    if sys.argv[3] == "released":
        lease.release()
    print("held", flush=True)
    await asyncio.sleep(600)

stage = Stage(Path(sys.argv[1]), Path(sys.argv[2]))
stage.play(scene, BY_GRES)
"""


def admitted(cluster: SlurmCluster) -> Qpu:
    """A QPU whose leases Slurm grants: the box has two."""
    qpu = EmulatedQpu(cluster.world, Annealer(), profile("superconducting"))
    return Site(cluster.world, cluster, qpu).qpu


def names(stage: Stage, partition: str = "quantum") -> list[str]:
    """The running jobs of a partition."""
    return sorted(stage.slurm("squeue", "-h", "-t", "R", "-p", partition, "-o", "%j").split())


def lanes(job: JobContext, what: str) -> list[str]:
    return [span.lane for span in job.ledger.intervals() if span.what == what]


async def lost(cluster: SlurmCluster, lease: Any) -> None:
    """Wait until the driver knows that a lease is gone; the limit is that of `play`."""
    while not lease._slot._lost.done():
        await cluster.world.sleep(0.05)


@pytest.mark.parametrize("qpu_by", ["gres", "licence"])
def test_a_lease_is_a_job_that_slurm_admits(stage: Stage, qpu_by: str) -> None:
    first, third = stage.job("first"), stage.job("third")

    async def scene(cluster: SlurmCluster) -> None:
        qpu = admitted(cluster)
        one, _ = await qpu.lease(first), await qpu.lease(stage.job("second"))
        assert names(stage) == [qpu_name(first), qpu_name(stage.job("second"))]
        waiting = cluster.world.start(qpu.lease(third))
        await stage.pending()
        assert not waiting.done()
        one.release()
        two = await waiting
        assert await two.run(PAYLOAD, None, 0) == 7
        assert names(stage) == [qpu_name(stage.job("second")), qpu_name(third)]

    stage.play(scene, CompanionOptions(qpu_by=qpu_by))
    assert lanes(first, "held") == lanes(third, "held") == ["vqpu/0"]
    assert lanes(third, "wait") == ["qpu"]


def test_who_no_longer_wants_a_lease_leaves_the_queue(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        qpu = admitted(cluster)
        leases = [await qpu.lease(stage.job()) for _ in range(2)]
        waiting = cluster.world.start(qpu.lease(stage.job()))
        await stage.pending()
        await cluster.world.cancel([waiting])
        assert stage.slurm("squeue", "-h", "-t", "PD") == ""
        for lease in leases:
            lease.release()

    stage.play(scene, BY_GRES)


@pytest.mark.parametrize("qpu_by", ["gres", "licence"])
def test_nodes_and_a_qpu_are_one_heterogeneous_job(stage: Stage, qpu_by: str) -> None:
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> None:
        qpu = admitted(cluster)
        others = [await qpu.lease(stage.job(f"other-{n}")) for n in range(2)]
        asked = cluster.world.start(cluster.request(job, 2, co_allocate=qpu))
        await stage.pending()
        assert not asked.done()
        assert names(stage, "compute") == []  # a job that waits for a QPU holds no nodes
        others[0].release()
        both = await asked
        lease: Lease = both.take_co_allocated()
        ids = stage.slurm(
            "squeue", "-h", "-t", "R", "-n", f"{job_name(job)},{qpu_name(job)}", "-o", "%i"
        )
        assert {each.partition("+")[2] for each in ids.split()} == {"0", "1"}
        lease.release()
        third = await qpu.lease(stage.job("third"))  # there were two in all
        assert await run(both.nodes[1], job, abs, -3) == 3  # the nodes stay
        third.release()
        await both.release()
        assert stage.idle() == 3

    stage.play(scene, CompanionOptions(qpu_by=qpu_by))
    assert sorted(lanes(job, "held")) == ["node/c1", "node/c2", "vqpu/0"]


def test_a_lease_that_slurm_takes_away_is_asked_for_again(stage: Stage) -> None:
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> None:
        lease = await admitted(cluster).lease(job)
        before = stage.running()
        stage.slurm("scancel", *map(str, before))
        await lost(cluster, lease)
        assert lanes(job, "held") == ["vqpu/0"]
        await lease.run(PAYLOAD, None, 0)
        assert len(stage.running()) == 1 and stage.running() != before
        lease.release()

    stage.play(scene, BY_GRES)
    assert lanes(job, "held") == ["vqpu/0", "vqpu/0"]


def test_the_qpu_of_nodes_that_are_gone_is_asked_for_again(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        both = await cluster.request(stage.job(), 1, co_allocate=admitted(cluster))
        lease: Lease = both.take_co_allocated()
        await both.release()
        assert names(stage) == []
        await lost(cluster, lease)
        await lease.run(PAYLOAD, None, 0)
        assert len(names(stage)) == 1
        lease.release()

    stage.play(scene, BY_GRES)


@pytest.mark.parametrize("lease", ["held", "released"])
def test_qpus_do_not_outlive_a_driver_that_is_killed(stage: Stage, lease: str) -> None:
    words = [sys.executable, "-c", DRIVER, str(stage.conf), str(stage.folder), lease]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None and driver.stdout.readline() == "held\n"
    assert until(lambda: len(names(stage)) == (2 if lease == "held" else 1))
    assert len(names(stage, "compute")) == 1
    driver.kill()
    driver.communicate()
    assert until(lambda: stage.slurm("squeue", "-h") == "")


def test_the_reaper_ends_heterogeneous_jobs_that_wait(stage: Stage) -> None:
    mark = f"--comment={replace(Driver.own(), began='1').comment()}"
    words = ("--nodes=1", "--begin=now+60", mark, ":", "--partition=quantum", "--gres=qpu:1", mark)
    waiting = subprocess.Popen(
        ["salloc", *words, "true"], env=environment(stage.conf), stderr=subprocess.DEVNULL
    )
    assert until(lambda: len(stage.slurm("squeue", "-h", "-o", "%i").split()) == 2)
    assert len(stage.world.run(reap(Slurm(stage.conf)))) == 1
    assert waiting.wait(10) != 0


def test_a_quantum_partition_that_is_not_there_is_refused(stage: Stage) -> None:
    with pytest.raises(NotEnoughNodes, match="partition nowhere has no node"):
        stage.play(
            lambda cluster: cluster.close(),
            CompanionOptions(qpu_by="gres", qpu_partition="nowhere"),
        )


def test_a_qpu_that_slurm_does_not_have_is_told_in_its_words(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        await admitted(cluster).lease(stage.job())

    with pytest.raises(SlurmRefused, match="Slurm refused the QPU: "):
        stage.play(scene, CompanionOptions(qpu_by="gres", qpu_partition="compute"))


def test_waiting_for_a_lease_has_a_limit(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        qpu = admitted(cluster)
        for _ in range(3):
            await qpu.lease(stage.job())

    with pytest.raises(QueuedTooLong, match=r"job waited in Slurm's queue for 1\.2 s"):
        stage.play(scene, CompanionOptions(qpu_by="gres", queue_limit=1.2))


@pytest.mark.parametrize("together", [False, True])
def test_a_lease_counts_as_held_until_slurm_has_it_back(stage: Stage, together: bool) -> None:
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> None:
        qpu = admitted(cluster)
        if together:
            both = await cluster.request(job, 1, co_allocate=qpu)
            lease: Lease = both.take_co_allocated()
        else:
            lease = await qpu.lease(job)
        lease.release()
        assert [span for span in job.ledger.intervals() if _is_open(span)]
        await qpu.admission.returned(job)
        assert names(stage) == []
        assert not [span for span in job.ledger.intervals() if _is_open(span)]
        if together:
            assert len(names(stage, "compute")) == 1  # the nodes stay

    stage.play(scene, BY_GRES)


def _is_open(span: Interval) -> bool:
    return span.lane.startswith("vqpu/") and span.open_ended
