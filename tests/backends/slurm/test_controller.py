"""Slurm's controller is down, for a moment as during a restart, or for more than a minute."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qtide import box, classical, task
from qtide.backends.clusters.slurm.commands import environment
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.box.daemons import daemons, launch
from qtide.box.layout import BoxLayout
from tests.backends.slurm.stage import Stage, until
from tests.backends.slurm.test_cluster import place
from tests.backends.slurm.test_faults import held, kill, pool_of

LIMIT = 180.0


@pytest.mark.parametrize(  # seconds: salloc is given no longer than 5
    "away", [6.0, pytest.param(65.0, marks=pytest.mark.further)]
)
def test_a_controller_that_is_away_disturbs_nobody(
    empty: Path, tmp_path: Path, away: float
) -> None:
    box.up(empty, nodes=2)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> list[str]:
        world, pool = cluster.world, await pool_of(cluster, job, 1)
        kill(empty, "slurmctld")
        while "slurmctld" in daemons(empty).values():
            await world.sleep(0.05)
        second = world.start(cluster.request(job, 1))
        places = await pool.run(classical(task(place), task(place)), "0")
        release = world.start(pool.release_all())
        await world.sleep(away)
        assert not second.done() and not release.done()
        restart(stage)
        await world.settled([release])
        return [*places, *(node.name for node in (await second).nodes)]

    first, again, other = stage.play(scene, limit=LIMIT)
    assert first == again
    assert sorted(held(job)) == sorted([f"node/{first}", f"node/{other}"])
    assert stage.slurm("squeue", "-h") == ""
    assert until(lambda: stage.idle() == 2)  # no node is drained for it


def test_a_run_that_starts_just_after_a_restart_waits_for_the_nodes(
    empty: Path, tmp_path: Path
) -> None:
    box.up(empty, nodes=2)
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    kill(empty, "slurmctld")
    assert until(lambda: "slurmctld" not in daemons(empty).values())
    restart(stage)
    assert until(lambda: answers(stage))

    async def scene(cluster: SlurmCluster) -> int:
        allocation = await cluster.request(stage.job(), 2)
        await allocation.release()
        return len(allocation.nodes)

    assert stage.play(scene) == 2


def answers(stage: Stage) -> bool:
    """Whether the controller answers; its nodes are still unknown to it then."""
    done = subprocess.run(["sinfo"], env=environment(stage.conf), capture_output=True, check=False)
    return done.returncode == 0


def restart(stage: Stage) -> None:
    launch(BoxLayout(stage.conf.parents[1]), "slurmctld", "-f", str(stage.conf))
