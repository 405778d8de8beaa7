from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qtide import box, classical, task
from qtide.backends.clusters.slurm.accounting import usage
from qtide.backends.clusters.slurm.commands import Slurm
from qtide.backends.clusters.slurm.mark import Driver, job_name, reap
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.box.daemons import daemons
from qtide.core.errors import NodeLost
from qtide.core.job import JobContext
from qtide.strategies.node_pool import NodePool
from tests.backends.slurm.stage import Stage, run, until

DRIVER = """
import asyncio, sys
from pathlib import Path
from qtide.backends.clusters.slurm.companion import CompanionOptions
from tests.backends.slurm.stage import Stage

async def scene(cluster):
    await cluster.request(stage.job(), 2)
    print("held", flush=True)
    await asyncio.sleep(600)

stage = Stage(Path(sys.argv[1]), Path(sys.argv[2]))
stage.play(scene, CompanionOptions(silence=float(sys.argv[3])))
"""
SHORT = 1.2
"""Seconds of silence after which a driver in a test gives a node up; its nodes wait for 6 s."""


def once(marker: str) -> str:
    """Hangs the first time; the next time, says where it runs."""
    if not Path(marker).exists():
        Path(marker).touch()
        time.sleep(600)
    return os.environ["SLURMD_NODENAME"]


async def pool_of(cluster: SlurmCluster, job: JobContext, nodes: int) -> NodePool:
    pool = NodePool(cluster.world, cluster, job, nodes)
    pool.join(await cluster.request(job, nodes))
    return pool


def kill(folder: Path, name: str, word: str = "") -> None:
    """Kill a daemon of a box; a slurmd by its node."""
    for pid, daemon in daemons(folder).items():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if daemon == name and (not word or word in words):
            os.kill(pid, signal.SIGKILL)


def rerun(stage: Stage, job: JobContext, disturb: Callable[[], object]) -> str:
    """Where a task ends that is disturbed after it has begun."""
    marker = stage.folder / "begun"

    async def scene(cluster: SlurmCluster) -> list[Any]:
        pool = await pool_of(cluster, job, 1)
        work = cluster.world.start(pool.run(classical(task(once, str(marker))), "0"))
        while not marker.exists():
            await cluster.world.sleep(0.05)
        disturb()
        try:
            return await work
        finally:
            await pool.release_all()

    return str(stage.play(scene)[0])


def held(job: JobContext) -> list[str]:
    """The nodes that a job has held."""
    return sorted(span.lane for span in job.ledger.intervals() if span.what == "held")


def test_a_companion_that_somebody_else_cancels_is_replaced(stage: Stage) -> None:
    def cancel() -> None:
        stage.slurm("scancel", *map(str, stage.running()))

    assert rerun(stage, stage.job(), cancel) in ("c1", "c2", "c3")


@pytest.mark.parametrize("state", ["down", "drain"])
def test_a_node_that_an_operator_takes_away_is_replaced(
    empty: Path, tmp_path: Path, state: str
) -> None:
    """`down` ends what runs there; a drained node only gets nothing new, so end its job too."""
    box.up(empty, nodes=2)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = stage.job()

    def take_away() -> None:
        stage.slurm("scontrol", "update", "nodename=c1", f"state={state}", "reason=test")
        if state == "drain":
            stage.slurm("scancel", *map(str, stage.running()))

    # in a box, a node that is down returns as soon as its slurmd has registered again
    assert rerun(stage, job, take_away) in (["c2"] if state == "drain" else ["c1", "c2"])
    assert len(held(job)) == 2


def test_who_waits_for_a_node_hears_of_its_loss(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        job = stage.job()
        allocation = await cluster.request(job, 1)
        marker = stage.folder / "begun"
        work = cluster.world.start(run(allocation.nodes[0], job, once, str(marker)))
        while not marker.exists():  # the limit is that of `play`
            await cluster.world.sleep(0.05)
        stage.slurm("scancel", *map(str, stage.running()))
        await work

    with pytest.raises(NodeLost, match="node c1"):
        stage.play(scene)


def test_a_task_whose_process_dies_is_a_lost_node(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        job = stage.job()
        allocation = await cluster.request(job, 1)
        await run(allocation.nodes[0], job, os._exit, 3)

    with pytest.raises(NodeLost, match="lost its agent"):
        stage.play(scene)


def test_a_node_whose_slurmd_is_dead_is_held_until_its_job_ends(
    empty: Path, tmp_path: Path
) -> None:
    """Slurm completes the job for as long as it waits for the node, but charges nobody for that."""
    box.up(empty, nodes=2, slurmd_timeout=3)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> None:
        allocation = await cluster.request(job, 2)
        kill(empty, "slurmd", allocation.nodes[0].name)
        await allocation.release()

    stage.play(scene, limit=180.0)
    charged = asyncio.run(usage(Slurm(stage.conf), job))
    spans = [span for span in job.ledger.intervals() if span.what == "held"]
    assert charged.companions == 1 and len(spans) == 2
    # Slurm counts whole seconds of each node; its nodes were completing for at least five more
    assert abs(sum(span.seconds for span in spans) - charged.node_seconds) < 5


def test_the_task_of_a_node_that_fails_runs_again_on_another(empty: Path, tmp_path: Path) -> None:
    box.up(empty, nodes=2, slurmd_timeout=2)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = stage.job()
    assert rerun(stage, job, lambda: kill(empty, "slurmd", "c1")) == "c2"
    assert held(job) == ["node/c1", "node/c2"]


@pytest.fixture
def driver(stage: Stage) -> subprocess.Popen[str]:
    """Another driver, which holds two nodes."""
    words = [sys.executable, "-c", DRIVER, str(stage.conf), str(stage.folder), str(SHORT)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_nodes_do_not_outlive_a_driver_that_is_killed(
    stage: Stage, driver: subprocess.Popen[str]
) -> None:
    assert stage.idle() == 1
    driver.kill()
    driver.communicate()
    assert until(lambda: stage.idle() == 3)


def test_nodes_give_themselves_back_when_their_driver_is_silent(
    stage: Stage, driver: subprocess.Popen[str]
) -> None:
    driver.send_signal(signal.SIGSTOP)
    try:
        assert until(lambda: stage.idle() == 3)
    finally:
        driver.kill()
        driver.communicate()


def test_a_driver_that_is_told_to_end_gives_everything_back_first(
    stage: Stage, driver: subprocess.Popen[str]
) -> None:
    driver.terminate()
    driver.communicate()
    assert stage.idle() == 3


def test_the_reaper_ends_companions_of_dead_drivers_alone(stage: Stage) -> None:
    own = Driver.own()
    marks = {
        "dead": replace(own, began="1").comment(),
        "elsewhere": replace(own, host="elsewhere", began="1").comment(),
        "alive": replace(own, pid=1, began=_began(1)).comment(),
    }
    for name, mark in marks.items():
        stage.slurm("salloc", "-N1", "--no-shell", "-J", name, f"--comment={mark}", "-t1")
    try:
        reaped = stage.world.run(reap(Slurm(stage.conf)))
        assert len(reaped) == 1
        assert until(lambda: len(stage.running()) == 2)
        left = stage.slurm("squeue", "-h", "-t", "R", "-o", "%j").split()
        assert sorted(left) == ["alive", "elsewhere"]
    finally:
        stage.slurm("scancel", *map(str, stage.running()))
        assert until(lambda: stage.idle() == 3)


def _began(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_who_resumes_a_run_ends_what_its_last_driver_left(
    stage: Stage, driver: subprocess.Popen[str]
) -> None:
    async def scene(cluster: SlurmCluster) -> int:
        allocation = await cluster.request(stage.job(), 3)  # the same run: the same folder
        return len(allocation.nodes)

    try:
        assert stage.play(scene) == 3
    finally:
        driver.kill()
        driver.communicate()


def test_two_clusters_of_one_driver_leave_each_other_alone(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> int:
        job = stage.job("one")
        node = (await cluster.request(job, 1)).nodes[0]
        other = await stage.connect()
        await other.request(stage.job("other"), 1)
        await other.close()
        return int(await run(node, job, abs, -7))

    assert stage.play(scene) == 7


def test_what_a_lost_answer_left_in_the_queue_goes_when_the_cluster_closes(stage: Stage) -> None:
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> None:
        await (await cluster.request(job, 1)).release()
        words = ("salloc", "-N1", "--no-shell", f"--job-name={job_name(job)}", "-t1")
        stage.slurm(*words, f"--comment={Driver.own().comment()}")
        assert len(stage.running()) == 1

    stage.play(scene)
    assert until(lambda: stage.slurm("squeue", "-h") == "")
