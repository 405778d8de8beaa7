from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from qtide.backends.clusters.slurm.commands import SlurmFailed
from qtide.backends.clusters.slurm.companion import CompanionOptions, QueuedTooLong
from qtide.backends.clusters.slurm.slurm_cluster import SlurmCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.devices.profile import profile
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.errors import NodeLost, NotEnoughNodes
from tests.backends.slurm.stage import Stage, run


def place() -> str:
    return os.environ["SLURMD_NODENAME"]


def refuse(text: str) -> None:
    raise ValueError(text)


def test_nodes_are_granted_work_and_go_back(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> list[str]:
        job = stage.job()
        allocation = await cluster.request(job, 2)
        places = [await run(node, job, place) for node in allocation.nodes]
        assert places == [node.name for node in allocation.nodes]
        assert stage.idle() == 1
        await allocation.release()
        await allocation.release()
        assert stage.idle() == 3
        with pytest.raises(NodeLost, match="was given back"):
            await run(allocation.nodes[0], job, place)
        return [f"{span.what} {span.lane}" for span in job.ledger.intervals()]

    spans = stage.play(scene)
    assert spans[0] == "wait nodes"
    assert sorted(each for each in spans if each.startswith("held")) == [
        "held node/c1",
        "held node/c2",
    ]


def test_what_a_task_raises_comes_back_with_its_place(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> ValueError:
        job = stage.job()
        allocation = await cluster.request(job, 1)
        with pytest.raises(ValueError, match="not this way") as caught:
            await run(allocation.nodes[0], job, refuse, "not this way")
        assert await run(allocation.nodes[0], job, place) == allocation.nodes[0].name
        return caught.value

    assert any("on node c" in note for note in stage.play(scene).__notes__)


def test_large_values_travel_by_file(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> int:
        job = stage.job()
        allocation = await cluster.request(job, 1)
        return len(await run(allocation.nodes[0], job, bytes, 5_000_000))

    assert stage.play(scene) == 5_000_000
    assert list((stage.folder / "job/values").iterdir())


def test_shrinking_and_growing_on_the_same_node_again_and_again(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        job = stage.job()
        for _ in range(5):
            allocation = await cluster.request(job, 3)
            assert await run(allocation.nodes[2], job, place) == "c3"
            await allocation.release()

    stage.play(scene)


def test_impatience_takes_what_there_is(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> list[int]:
        job = stage.job()
        first = await cluster.request(job, 2)
        fewer = await cluster.request(job, 3, least=1, patience=0.1)
        none = await cluster.request(job, 2, least=0, patience=0.1)
        got = [len(each.nodes) for each in (first, fewer, none)]
        await none.release()
        return got

    assert stage.play(scene) == [2, 1, 0]


def test_a_request_that_needs_all_waits_for_all(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> int:
        job = stage.job()
        first = await cluster.request(job, 1)
        second = cluster.world.start(cluster.request(job, 3, least=3, patience=0.0))
        await stage.pending()
        while cluster.expected_wait(3) < 1.0:  # the limit is that of `play`
            await cluster.world.sleep(0.05)
        assert not second.done()
        assert cluster.expected_wait(3) < 60  # not until the time limit of the first
        await first.release()
        size = len((await second).nodes)
        assert cluster.expected_wait(3) > 0
        cluster.forget()
        assert cluster.expected_wait(3) == 0
        return size

    assert stage.play(scene) == 3


def test_a_request_that_is_cancelled_leaves_the_queue(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> str:
        job = stage.job()
        await cluster.request(job, 3)
        waiting = cluster.world.start(cluster.request(job, 1))
        await stage.pending()
        await cluster.world.cancel([waiting])
        return stage.slurm("squeue", "-h", "-t", "PD", "-o", "%i")

    assert stage.play(scene) == ""


def test_waiting_has_a_limit_and_a_reason(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        await cluster.request(stage.job("first"), 3)
        await cluster.request(stage.job("second"), 1)

    with pytest.raises(
        QueuedTooLong, match=r"second waited in Slurm's queue for 1\.5 s \(Resources\)"
    ):
        stage.play(scene, CompanionOptions(queue_limit=1.5))


def test_more_nodes_than_there_are_are_refused_at_once(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        assert cluster.size == 3
        await cluster.request(stage.job(), 4)

    with pytest.raises(NotEnoughNodes, match="needs 4 nodes, but Slurm's partition has 3"):
        stage.play(scene)


def test_what_slurm_refuses_is_told_in_its_words(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        await cluster.request(stage.job(), 1)

    with pytest.raises(SlurmFailed, match=r"Slurm refused the nodes: .*[Ff]eature"):
        stage.play(scene, CompanionOptions(constraint="no-such-feature"))


def test_a_cluster_whose_configuration_is_gone_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SlurmFailed, match=r"SLURM_CONF names .*, which does not exist"):
        Stage(tmp_path / "slurm.conf", tmp_path).play(lambda cluster: cluster.close())


def test_a_partition_without_nodes_is_refused(stage: Stage) -> None:
    with pytest.raises(NotEnoughNodes, match="partition nowhere has no node"):
        stage.play(lambda cluster: cluster.close(), CompanionOptions(partition="nowhere"))


def test_another_partition_can_be_named(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> str:
        job = stage.job()
        allocation = await cluster.request(job, 1)
        answer: str = await run(allocation.nodes[0], job, place)
        return answer

    assert stage.play(scene, CompanionOptions(partition="quantum", time_limit="1")) == "q1"


def test_an_agent_that_cannot_start_is_reported_and_the_nodes_go_back(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        await cluster.request(stage.job(), 1)

    with pytest.raises(Exception, match="the agent of node c1 did not start"):
        stage.play(scene, CompanionOptions(python="/no/such/python"))


def test_nodes_and_a_lease_are_granted_together_or_not_at_all(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        world = cluster.world
        qpu = EmulatedQpu(world, Annealer(), profile("superconducting"), slots=1)
        taken = qpu.take(stage.job("other"))
        assert taken is not None
        job = stage.job()
        both = world.start(cluster.request(job, 1, co_allocate=qpu))
        await world.sleep(1.0)
        assert not both.done()
        assert stage.idle() == 3  # a job that waits for a lease holds no nodes
        taken.release()
        allocation = await both
        assert qpu.take(stage.job("third")) is None
        await allocation.release()
        assert qpu.take(stage.job("third")) is not None

    stage.play(scene)


def test_closing_gives_everything_back(stage: Stage, tmp_path: Path) -> None:
    async def scene(cluster: SlurmCluster) -> None:
        for name in ("a", "b", "c"):
            await cluster.request(stage.job(name), 1)
        assert len(stage.running()) == 3

    stage.play(scene)
    assert stage.running() == []


def loaded(name: str) -> bool:
    had = name in sys.modules
    importlib.import_module(name)
    return had


def test_a_second_grants_task_finds_its_modules_imported(stage: Stage) -> None:
    async def scene(cluster: SlurmCluster) -> tuple[list[bool], list[str]]:
        job, had = stage.job(), []
        for _ in range(2):
            allocation = await cluster.request(job, 1)
            had.append(await run(allocation.nodes[0], job, loaded, "numpy"))
            await allocation.release()
        return had, [span.label for span in job.ledger.intervals() if span.what == "starting"]

    assert stage.play(scene) == ([False, True], ["", "loaded", ""])
