"""Tasks that are ended, and what is in the log after that, on a real Slurm."""

from __future__ import annotations

import os

import pytest

from qtide import TimedOut, task
from qtide.backends.clusters.cluster import Work
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.core.log import lines
from tests.backends.clusters import remote
from tests.backends.slurm.stage import Stage, run


def say_where() -> str:
    print("I am on", os.environ["SLURMD_NODENAME"])
    return os.environ["SLURMD_NODENAME"]


def test_a_task_over_its_limit_is_ended_and_its_node_goes_on(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> list[str]:
        job = stage.job()
        allocation = await cluster.request(job, 2)
        first, second = allocation.nodes
        slow = Work(job, task(remote.hold_lock, 60).within(0.2), "1/0")
        with pytest.raises(TimedOut, match=r"hold_lock ran for longer than its limit of 0.2 s"):
            await first.run(slow)
        assert stage.idle() == 1  # the companion keeps the node
        places = [await run(node, job, say_where) for node in (first, second)]
        await allocation.release()
        assert stage.idle() == 3
        return places

    places = stage.play(scene)
    said = [(line.node, line.function, line.text) for line in lines(stage.log)]
    assert said == [(node, "say_where", f"I am on {node}") for node in places]
