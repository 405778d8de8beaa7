"""Tasks with a time limit on the embedded cluster, with real agents."""

import os
from pathlib import Path

import pytest

from qtide import TimedOut, classical, task
from qtide.strategies.node_pool import NodePool
from tests.backends.clusters import remote
from tests.backends.clusters.test_local import Lab, gone, play


def test_compiled_code_is_ended_with_what_it_started_and_the_node_goes_on(tmp_path: Path) -> None:
    async def main(lab: Lab) -> tuple[int, int]:
        before = await lab.run(task(remote.pid))
        with pytest.raises(TimedOut, match=r"hold_lock ran for longer than its limit of 0.2 s"):
            await lab.run(task(remote.hold_lock, 60).within(0.2))
        return before, await lab.run(task(remote.pid))

    before, after = play(tmp_path, main)
    assert before != after
    assert gone(before)


def test_a_task_that_ends_in_time_leaves_its_agent_alone(tmp_path: Path) -> None:
    async def main(lab: Lab) -> set[int]:
        return {await lab.run(task(remote.pid).within(60)) for _ in range(2)}

    assert len(play(tmp_path, main)) == 1


def test_a_node_that_goes_back_after_a_limit_is_there_for_the_next(tmp_path: Path) -> None:
    async def main(lab: Lab) -> int:
        with pytest.raises(TimedOut):
            await lab.run(task(remote.hold_lock, 60).within(0.2))
        await lab.allocation.release()
        lab.allocation = await lab.cluster.request(lab.job, 1)
        return int(await lab.run(task(remote.pid)))

    assert play(tmp_path, main) != os.getpid()


def test_the_other_tasks_of_a_phase_end_as_usual(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        pool = NodePool(lab.world, lab.cluster, lab.job, most=2)
        pool.join(lab.allocation)
        slow, others = task(remote.hold_lock, 60).within(0.2), [task(remote.pid)] * 5
        try:
            with pytest.raises(TimedOut):
                await pool.run(classical(slow, *others), "1")
            assert len(await pool.run(classical(*others), "2")) == 5
            assert len(await pool.run(classical(task(remote.who).on(2)), "3")) == 1
        finally:
            await pool.release_all()

    play(tmp_path, main, nodes=2)
