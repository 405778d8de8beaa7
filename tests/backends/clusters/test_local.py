"""The embedded cluster, with real agents."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qtide import classical, task
from qtide.backends.clusters.cluster import Allocation, Work
from qtide.backends.clusters.link import SILENCE
from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import NodeLost, NodeTaskFailed, NodeUnusable
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.log import Log, lines
from qtide.core.values import Values
from qtide.core.world.real import RealWorld
from qtide.programs.phase import Task
from qtide.strategies.node_pool import NodePool
from tests.backends.clusters import remote

AS_USUAL = LocalOptions()


class Lab:
    """A local cluster with one allocation."""

    def __init__(self, folder: Path, cluster: LocalCluster, world: RealWorld) -> None:
        self.world = world
        self.cluster = cluster
        values, log = Values(folder / "values"), Log(folder / "agents.log")
        self.job = JobContext("job", Ledger("job", world.now), values, log=log)
        self.allocation: Allocation
        self.go = folder / "go"
        """Allows the task that `begin` has started to end."""
        self._begun = folder / "begun"

    async def begin(self) -> asyncio.Future[Any]:
        """A task that is at work; the limit is that of `play`."""
        work = asyncio.ensure_future(self.run(task(remote.wait, str(self._begun), str(self.go))))
        while not self._begun.exists():
            await asyncio.sleep(0.01)
        return work

    async def run(self, work: Task[Any], node: int = 0) -> Any:
        work.use()  # as the phase that it would be part of
        return await self.allocation.nodes[node].run(Work(self.job, work, "1"))


@asynccontextmanager
async def lab(
    folder: Path, nodes: int, options: LocalOptions, silence: float
) -> AsyncIterator[Lab]:
    world = RealWorld()
    cluster = LocalCluster(world, nodes, options, silence)
    made = Lab(folder, cluster, world)
    made.allocation = await cluster.request(made.job, nodes)
    try:
        yield made
    finally:
        await cluster.close()


def play(
    folder: Path,
    main: Callable[[Lab], Coroutine[Any, Any, Any]],
    nodes: int = 1,
    options: LocalOptions = AS_USUAL,
    silence: float = SILENCE,
) -> Any:
    async def whole() -> Any:
        async with lab(folder, nodes, options, silence) as made:
            return await main(made)

    return asyncio.run(asyncio.wait_for(whole(), 60))


def gone(pid: int, within: float = 10.0) -> bool:
    """Whether the process ends in time."""
    limit = time.monotonic() + within
    while time.monotonic() < limit:
        try:
            os.kill(pid, 0)
            if "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]:
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_a_task_by_import_path_and_one_by_value(tmp_path: Path) -> None:
    number = 5

    async def main(lab: Lab) -> list[Any]:
        by_path = await lab.run(task(remote.add, 1, 2))
        return [by_path, await lab.run(task(lambda x: x + number, 2))]

    assert play(tmp_path, main) == [3, 7]


def test_an_agent_stays_warm_over_grants(tmp_path: Path) -> None:
    async def main(lab: Lab) -> set[int]:
        first = await lab.run(task(remote.pid))
        await lab.allocation.release()
        lab.allocation = await lab.cluster.request(lab.job, 1)
        return {first, await lab.run(task(remote.pid))}

    assert len(play(tmp_path, main)) == 1


def test_arrays_go_and_come_by_file(tmp_path: Path) -> None:
    array = np.arange(100_000.0)

    async def main(lab: Lab) -> Any:
        return await lab.run(task(remote.double, array))

    assert (play(tmp_path, main) == 2 * array).all()
    assert len(list((tmp_path / "values").iterdir())) == 2


def test_an_exception_comes_with_task_node_and_the_users_own_lines(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.fail, "wrong number"))

    with pytest.raises(ValueError, match="wrong number") as caught:
        play(tmp_path, main)
    notes = "\n".join(caught.value.__notes__)
    assert "in the task fail on node n1" in notes
    assert "remote.py" in notes
    assert "raise ValueError(text)" in notes
    assert "agent.py" not in notes


def test_an_exception_that_cannot_travel_is_told_as_text(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.fail_stubbornly))

    with pytest.raises(NodeTaskFailed, match=r"Stubborn: first"):
        play(tmp_path, main)


def test_a_result_that_cannot_be_stored_is_an_exception(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.unstorable))

    with pytest.raises(TypeError, match="cannot be pickled"):
        play(tmp_path, main)


def test_what_a_task_prints_goes_to_the_log(tmp_path: Path) -> None:
    async def main(lab: Lab) -> str:
        return str(await lab.run(task(remote.chatter)))

    assert play(tmp_path, main) == "heard"
    (line,) = lines(tmp_path / "agents.log")
    assert line[1:] == ("n1", "1", "chatter", "to stdout")


def test_a_line_belongs_to_the_task_that_printed_it_also_without_a_newline(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        for number in range(20):
            await lab.run(task(remote.say, f"a {number}\nb {number}", end=""))

    play(tmp_path, main)
    said = [line.text for line in lines(tmp_path / "agents.log")]
    assert said == [f"{letter} {number}" for number in range(20) for letter in "ab"]


def test_what_a_task_says_while_it_runs_is_in_the_log_before_it_ends(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        work = await lab.begin()
        while not any(lines(tmp_path / "agents.log")):  # the limit is that of `play`
            await asyncio.sleep(0.01)
        assert not work.done()
        lab.go.touch()
        await work

    play(tmp_path, main)


def test_the_last_words_of_an_agent_that_crashes_are_kept(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.crash, "so it ends"))

    with pytest.raises(NodeLost):
        play(tmp_path, main)
    assert [line.text for line in lines(tmp_path / "agents.log")] == ["so it ends"]


def test_of_a_task_that_prints_without_end_a_part_is_kept(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.say, "x" * 99 + "\n", times=60_000))

    play(tmp_path, main)
    said = [line.text for line in lines(tmp_path / "agents.log")]
    assert "bytes more were left out" in said[-1]
    assert said[0] == "x" * 99


def test_a_killed_agent_is_a_lost_node(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        work = await lab.begin()
        os.kill(lab.cluster.pids()["n1"], signal.SIGKILL)
        await work

    with pytest.raises(NodeLost, match="killed by signal 9"):
        play(tmp_path, main)


def test_an_agent_that_dies_before_its_children_is_a_lost_node(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        await lab.run(task(remote.die_before_a_child))

    with pytest.raises(NodeLost, match="exit code 3"):
        play(tmp_path, main)


def test_a_task_that_holds_pythons_lock_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    async def main(lab: Lab) -> int:
        return int(await lab.run(task(remote.hold_lock, 5)))

    assert play(tmp_path, main, silence=3.0) == 5


def test_an_agent_that_says_nothing_is_a_lost_node(tmp_path: Path) -> None:
    async def main(lab: Lab) -> float:
        work = await lab.begin()
        os.killpg(lab.cluster.pids()["n1"], signal.SIGSTOP)
        with pytest.raises(NodeLost, match=r"did not answer for 2 s"):
            await work
        return await _fresh(lab)

    assert play(tmp_path, main, silence=2.0) == 3


def test_the_task_of_a_killed_agent_runs_again_elsewhere(tmp_path: Path) -> None:
    async def main(lab: Lab) -> list[Any]:
        pool = NodePool(lab.world, lab.cluster, lab.job, most=2)
        pool.join(lab.allocation)
        phase = classical(task(remote.die_once, str(tmp_path / "marker")), task(remote.add, 1))
        results = await pool.run(phase, "1")
        await pool.release_all()
        return results

    assert play(tmp_path, main, nodes=2) == ["survived", 1]


def test_a_node_that_comes_as_its_task_is_cancelled_goes_to_the_next_one(tmp_path: Path) -> None:
    async def main(lab: Lab) -> tuple[bool, list[Any]]:
        pool = NodePool(lab.world, lab.cluster, lab.job, most=1)
        cancelled = lab.world.start(pool.run(classical(task(remote.add, 1)), "1"))
        await lab.world.sleep(0.01)
        cancelled.cancel()
        pool.join(lab.allocation)  # before the cancelled task has had its turn
        results = await pool.run(classical(task(remote.add, 2)), "2")
        await pool.release_all()
        return cancelled.cancelled(), results

    assert play(tmp_path, main) == (True, [2])


def test_a_task_that_always_kills_its_agent_is_given_up(tmp_path: Path) -> None:
    async def main(lab: Lab) -> None:
        pool = NodePool(lab.world, lab.cluster, lab.job, most=1)
        pool.join(lab.allocation)
        try:
            await pool.run(classical(task(os.kill, 0, signal.SIGKILL)), "1")
        finally:
            await pool.release_all()

    with pytest.raises(NodeLost) as caught:
        play(tmp_path, main)
    assert "lost 4 nodes; it is given up" in caught.value.__notes__[0]


def test_an_answer_after_the_node_was_given_up_is_refused(tmp_path: Path) -> None:
    async def main(lab: Lab) -> tuple[int, float]:
        node = lab.allocation.nodes[0]
        work = await lab.begin()
        node.lose("was cut off")
        with pytest.raises(NodeLost, match="was cut off"):
            await work
        lab.go.touch()
        while not node.refused:  # the limit is that of `play`
            await asyncio.sleep(0.01)
        return node.refused, await _fresh(lab)

    assert play(tmp_path, main) == (1, 3)


async def _fresh(lab: Lab) -> float:
    """What a new grant of the same node computes."""
    await lab.allocation.release()
    lab.allocation = await lab.cluster.request(lab.job, 1)
    return float(await lab.run(task(remote.add, 1, 2)))


def test_a_node_given_back_while_it_works_gets_a_new_agent(tmp_path: Path) -> None:
    async def main(lab: Lab) -> tuple[bool, float]:
        work = await lab.begin()
        old = lab.cluster.pids()["n1"]
        result = await _fresh(lab)
        with pytest.raises(NodeLost):
            await work
        return gone(old), result

    assert play(tmp_path, main) == (True, 3)


def test_closing_leaves_no_agent_and_nothing_it_started(tmp_path: Path) -> None:
    async def main(lab: Lab) -> list[int]:
        return [await lab.run(task(remote.pid)), await lab.run(task(remote.spawn_child))]

    assert [gone(pid) for pid in play(tmp_path, main)] == [True, True]


def test_memory_and_cores_are_limited(tmp_path: Path) -> None:
    async def main(lab: Lab) -> int:
        with pytest.raises(MemoryError):
            await lab.run(task(remote.eat, 2000))
        return int(await lab.run(task(remote.cores)))

    assert play(tmp_path, main, options=LocalOptions(memory=2**30, cores=1)) == 1


def test_ranks_of_an_spmd_task_know_who_they_are(tmp_path: Path) -> None:
    async def main(lab: Lab) -> list[Any]:
        pool = NodePool(lab.world, lab.cluster, lab.job, most=2)
        pool.join(lab.allocation)
        results = await pool.run(classical(task(remote.who).on(2)), "1")
        await pool.release_all()
        return results

    assert play(tmp_path, main, nodes=2) == [[(0, 2), (1, 2)]]


def test_an_agent_that_cannot_start_is_tried_elsewhere_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path / "nowhere"))  # no Python starts with that

    async def main() -> None:
        world = RealWorld()
        cluster = LocalCluster(world, 2)
        values, log = Values(tmp_path / "values"), Log(tmp_path / "agents.log")
        job = JobContext("job", Ledger("job", world.now), values, log=log)
        try:
            await cluster.request(job, 1)
        finally:
            await cluster.close()

    with pytest.raises(NodeUnusable, match=r"the agent of node n. did not start; see .*agents.log"):
        asyncio.run(asyncio.wait_for(main(), 60))
    assert any("PYTHONHOME" in line.text for line in lines(tmp_path / "agents.log"))
