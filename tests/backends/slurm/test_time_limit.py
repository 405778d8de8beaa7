"""Companions that reach their time limit: Slurm ends them, as it does any job."""

from __future__ import annotations

from qtide import classical, task
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.mark import job_name, qpu_name
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.job import JobContext
from qtide.strategies.node_pool import NodePool
from tests.backends.slurm.stage import Stage
from tests.backends.slurm.test_faults import once
from tests.backends.slurm.test_leases import PAYLOAD, admitted, lanes

LIMIT = 180.0
"""Slurm checks the time limits of jobs every 30 seconds."""


def end_time_now(stage: Stage) -> list[str]:
    """Let all running jobs reach their time limit; return which jobs these are."""
    jobs = [str(each) for each in stage.running()]
    for each in jobs:
        stage.slurm("scontrol", "update", f"jobid={each}", "EndTime=now+1")
    return jobs


def states(stage: Stage, job: JobContext) -> list[str]:
    names = f"--name={job_name(job)},{qpu_name(job)}"
    return stage.slurm("squeue", "-h", "--states=all", names, "-o", "%T").split()


def test_nodes_and_leases_whose_time_is_over_are_replaced(stage: Stage) -> None:
    job, marker = stage.job(), stage.folder / "begun"

    async def scene(cluster: SlurmCluster) -> tuple[str, int]:
        world, pool = cluster.world, NodePool(cluster.world, cluster, job, 1)
        lease = await admitted(cluster).lease(job)
        pool.join(await cluster.request(job, 1))
        work = world.start(pool.run(classical(task(once, str(marker))), "0"))
        while not marker.exists():
            await world.sleep(0.05)
        assert len(end_time_now(stage)) == 2
        places = await work
        while "vqpu/0" not in lanes(job, "held"):
            await world.sleep(0.1)
        answer = await lease.run(PAYLOAD, None, 0)
        lease.release()
        await pool.release_all()
        return places[0], answer

    place, answer = stage.play(scene, CompanionOptions(qpu_by="gres", time_limit="1"), LIMIT)
    assert (place in ("c1", "c2", "c3"), answer) == (True, 7)
    assert sorted(states(stage, job)).count("TIMEOUT") == 2
    assert lanes(job, "held").count("vqpu/0") == 2
