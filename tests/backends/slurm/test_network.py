"""A node that is cut off from the network: nothing dies or closes, it only falls silent."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from qtide import classical, task
from qtide.backends.clusters.cluster import Node
from qtide.backends.clusters.slurm.companion import CompanionOptions
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.strategies.node_pool import NodePool
from tests.backends.slurm.network import SLURMD_TIMEOUT, Network, wired
from tests.backends.slurm.stage import Stage, until

SILENCE = 6.0


def where_it_may(folder: str, cut: str) -> str:
    """Says where it runs; on the node that is cut off, only once that is allowed."""
    node = os.environ["SLURMD_NODENAME"]
    (Path(folder) / node).touch()
    while node == cut and not (Path(folder) / "go").exists():
        time.sleep(0.1)
    return node


@pytest.fixture
def network(empty: Path) -> Iterator[Network]:
    with wired(empty, nodes=2) as made:
        yield made


def test_a_node_that_is_cut_off_is_replaced_and_its_late_answer_refused(
    empty: Path, tmp_path: Path, network: Network
) -> None:
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    job = stage.job()

    async def scene(cluster: SlurmCluster) -> tuple[list[str], Node]:
        world, pool = cluster.world, NodePool(cluster.world, cluster, job, 2)
        both = await cluster.request(job, 2)
        pool.join(both)
        phase = classical(*(task(where_it_may, str(tmp_path), "c1") for _ in range(2)))
        work = world.start(pool.run(phase, "0"))
        while not (tmp_path / "c1").exists():
            await world.sleep(0.05)
        network.cut("c1")
        places = await work
        assert "c1 alloc" in stage.slurm("sinfo", "-hNo", "%N %t")  # Slurm has noticed nothing
        network.mend("c1")
        (tmp_path / "go").touch()
        while not both.nodes[0].refused:
            await world.sleep(0.1)
        await pool.release_all()
        return places, both.nodes[0]

    places, node = stage.play(scene, CompanionOptions(silence=SILENCE))
    assert places == ["c2", "c2"]
    assert (node.lost.result(), node.refused) == (f"did not answer for {SILENCE:g} s", 1)
    assert until(lambda: stage.idle() == 2)
    assert stage.slurm("squeue", "-h") == ""


def test_nobody_waits_until_a_node_that_is_cut_off_is_given_back(
    empty: Path, tmp_path: Path, network: Network
) -> None:
    """Slurm itself waits for the node: the job that holds only this node cannot end before."""
    stage = Stage(empty / "etc/slurm.conf", tmp_path)

    async def scene(cluster: SlurmCluster) -> None:
        allocation = await cluster.request(stage.job(), 1)
        assert allocation.nodes[0].name == "c1"
        network.cut("c1")
        await allocation.nodes[0].lost
        await allocation.release()
        assert "c1 COMPLETING" in stage.slurm("squeue", "-ho", "%N %T")
        network.mend("c1")

    stage.play(scene, CompanionOptions(silence=SILENCE))
    stage.slurm("scontrol", "reconfigure")  # nodes register again: otherwise it takes two minutes
    assert until(lambda: stage.slurm("squeue", "-h") == "", limit=SLURMD_TIMEOUT)


def test_a_node_that_was_cut_off_before_is_passed_over(
    empty: Path, tmp_path: Path, network: Network
) -> None:
    """Slurm grants the node, since it has noticed nothing yet; the agent does not start there."""
    stage = Stage(empty / "etc/slurm.conf", tmp_path)
    network.cut("c1")

    async def scene(cluster: SlurmCluster) -> str:
        allocation = await cluster.request(stage.job(), 1)
        assert "c1 COMPLETING" in stage.slurm("squeue", "-ho", "%N %T")
        return allocation.nodes[0].name

    assert stage.play(scene) == "c2"
