"""Tasks that share local nodes: what each may use, and that none takes a neighbour with it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from qtide import TimedOut, classical, command, task
from qtide.backends.clusters import nursery
from qtide.backends.clusters.agent import near_each_other
from qtide.backends.clusters.local import LocalCluster, LocalOptions
from qtide.core.errors import NodeLost, NotEnoughNodes
from qtide.core.ledger import Event, Interval
from qtide.core.resources import NodeKind
from qtide.programs.calls import Called, run_calls
from qtide.programs.phase import Classical
from qtide.strategies import task_batch
from qtide.strategies.node_pool import NodePool
from tests.backends.clusters import remote
from tests.backends.clusters.test_local import Lab, gone, play
from tests.core.invariant import check

EIGHT = LocalOptions(cores=8, gpus=4)


class Packed:
    """Runs phases on the nodes of a lab."""

    def __init__(self, lab: Lab) -> None:
        self.pool = NodePool(lab.world, lab.cluster, lab.job, most=len(lab.allocation.nodes))
        self.pool.join(lab.allocation)

    async def run(self, *tasks: Any) -> list[Any]:
        phase: Classical = classical(*tasks)
        phase.use()
        return await self.pool.run(phase, "1")


def packed(folder: Path, main: Callable[[Packed], Coroutine[Any, Any, Any]], nodes: int = 1) -> Any:
    async def whole(lab: Lab) -> Any:
        made = Packed(lab)
        try:
            return await main(made)
        finally:
            await made.pool.close()

    return play(folder, whole, nodes, EIGHT)


def test_tasks_share_a_node_each_with_cores_and_gpus_of_its_own(tmp_path: Path) -> None:
    async def main(lab: Packed) -> list[Any]:
        place = tmp_path / "meeting"
        place.mkdir()
        meetings = [task(remote.meet, str(place), 4) for _ in range(4)]
        first = await lab.run(*(each.needs(cores=2, gpus=1) for each in meetings))
        again = await lab.run(*(task(remote.mine, 0.0).needs(cores=2, gpus=1) for _ in range(4)))
        bare = await lab.run(task(remote.mine, 0.0).needs(cores=1))
        return [first, again, *bare]

    first, again, bare = packed(tmp_path, main)
    assert {each["met"] for each in first} == {4}, "all four ran at once"
    assert len({each["pid"] for each in first}) == 4
    assert sorted(each["CUDA_VISIBLE_DEVICES"] for each in first) == ["0", "1", "2", "3"]
    assert {each["ROCR_VISIBLE_DEVICES"] for each in first} == {"0", "1", "2", "3"}
    assert {each["OMP_NUM_THREADS"] for each in first} == {"2"}
    here = sorted(os.sched_getaffinity(0))
    assert all(set(each["cores"]) <= set(here) and len(each["cores"]) <= 2 for each in first)
    assert {each["pid"] for each in again} <= {each["pid"] for each in first}, "they are warm"
    assert (bare["CUDA_VISIBLE_DEVICES"], bare["OMP_NUM_THREADS"]) == ("", "1")


def test_cores_next_to_each_other_are_near_each_other(tmp_path: Path) -> None:
    """Here, two sockets with two cores of two threads each, numbered in turn."""
    for cpu in range(8):
        place = tmp_path / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{cpu % 2}\n")
        (place / "core_id").write_text(f"{cpu % 4 // 2}\n")
    assert near_each_other(frozenset(range(8)), str(tmp_path)) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert near_each_other(frozenset({9, 8}), str(tmp_path)) == [8, 9], "nothing is known of them"


def test_what_a_task_prints_is_its_own(tmp_path: Path) -> None:
    async def main(lab: Packed) -> None:
        await lab.run(*(task(remote.shout, f"line {n}").needs(cores=1) for n in range(6)))

    packed(tmp_path, main)
    said = (tmp_path / "agents.log").read_text().splitlines()
    numbers = {line.rpartition("line ")[2]: line for line in said if "line " in line}
    assert sorted(numbers) == list("012345")
    assert all(f"1/{number}" in line for number, line in numbers.items())


def test_a_task_that_is_ended_takes_no_neighbour_with_it(tmp_path: Path) -> None:
    """For its time, for its memory, or by a kill of its process."""

    async def main(lab: Packed) -> list[int]:
        neighbour = lab.pool.world.start(lab.run(task(remote.mine, 2.0).needs(cores=1)))
        pids = []
        slow = task(remote.hold_lock, 60).needs(cores=1).within(0.2)
        for error, culprit in (
            (TimedOut, slow),
            (MemoryError, task(bytearray, 10**9).needs(memory="200 MB")),
            (NodeLost, task(remote.die).needs(cores=1)),
        ):
            with pytest.raises(error) as ended:
                await lab.run(culprit)
            if error is MemoryError:
                assert "its needs allow it 200 MB: raise memory=" in ended.value.__notes__
            pids += await lab.run(task(remote.pid).needs(cores=1))
        (alive,) = await neighbour
        assert alive["pid"] not in pids
        assert await lab.run(task(len, b"1").needs(memory="200 MB")) == [1]
        return pids

    assert packed(tmp_path, main)


def test_the_start_of_a_process_does_not_count_for_the_limit_of_its_task(tmp_path: Path) -> None:
    """A new nursery imports what earlier tasks needed, here for longer than the limit."""
    slow = tmp_path / "slow"
    code = f"import os, time; time.sleep(2.5 * os.path.exists({str(slow)!r}))"
    (tmp_path / "slow_to_import.py").write_text(code)

    async def main(lab: Packed) -> list[Any]:
        load = task(remote.load, "slow_to_import")
        before = await lab.run(load.needs(cores=1))
        slow.touch()
        return [*before, *await lab.run(load.needs(cores=2).within(2))]

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        assert packed(tmp_path, main) == [False, True]


def test_a_cancelled_task_ends_with_what_it_started(tmp_path: Path) -> None:
    async def main(lab: Packed) -> tuple[int, int]:
        file = tmp_path / "child"
        work = lab.pool.world.start(lab.run(task(remote.wait_with_child, str(file)).needs(cores=8)))
        while not file.exists() or not file.read_text():
            await lab.pool.world.sleep(0.01)
        work.cancel()
        (after,) = await lab.run(task(remote.pid).needs(cores=8))  # all cores are free again
        return int(file.read_text()), after

    child, _ = packed(tmp_path, main)
    assert gone(child)


def test_whole_nodes_and_parts_take_turns(tmp_path: Path) -> None:
    async def main(lab: Packed) -> list[Any]:
        parts = [task(remote.mine, 0.05).needs(cores=3) for _ in range(12)]
        ranks = task(remote.who).on(2).needs(cores=2)
        return await lab.run(*parts, task(remote.mine, 0.05), ranks, task(remote.mine, 0.0))

    *parts, whole, ranks, last = packed(tmp_path, main, nodes=2)
    assert len(parts) == 12
    assert ranks == [(0, 2), (1, 2)]
    assert whole["pid"] != last["pid"] or whole["end"] <= last["start"]


def test_impossible_needs_are_refused_before_anything_runs(tmp_path: Path) -> None:
    async def main(lab: Packed) -> None:
        with pytest.raises(NotEnoughNodes, match="9 cores of a node, but a node has 8 cores"):
            await lab.run(task(remote.pid).needs(cores=9), task(remote.pid))
        assert lab.pool.load == 0

    packed(tmp_path, main)


def test_forked_tasks_draw_different_numbers(tmp_path: Path) -> None:
    async def main(lab: Packed) -> list[Any]:
        await lab.run(task(remote.draw, 0.0).needs(cores=1))  # its modules are imported now
        return await lab.run(*(task(remote.draw, 0.2).needs(cores=2) for _ in range(4)))

    drawn = packed(tmp_path, main)
    assert len(set(drawn)) == len(drawn) == 4


def test_a_crowd_of_tasks_all_end(tmp_path: Path) -> None:
    async def main(lab: Packed) -> tuple[list[Any], float]:
        began = time.perf_counter()
        found = await lab.run(*(task(abs, -n).needs(cores=1 + n % 8) for n in range(300)))
        return found, time.perf_counter() - began

    found, _ = packed(tmp_path, main, nodes=2)
    assert found == list(range(300))


def test_short_tasks_travel_in_batches_and_each_has_its_span(tmp_path: Path) -> None:
    async def main(lab: Packed) -> tuple[list[Any], list[Interval], list[Event]]:
        ledger = lab.pool.job.ledger
        found = await lab.run(*(task(remote.add, n, 1).needs(cores=1) for n in range(400)))
        return found, ledger.intervals(), ledger.events

    found, spans, events = packed(tmp_path, main, nodes=2)
    assert found == [n + 1 for n in range(400)]
    assert sum(each.what == "busy" and each.label == "add" for each in spans) == 400
    assert sum(each.get("what") == "busy" for each in events) < 200, "messages to the nodes"
    run = Interval("job", "run", "driver", 0.0, time.time())
    assert check([run, *spans], 2, 1, kind=NodeKind(cores=8, gpus=4), slack=1e-5) == []


def test_so_do_short_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_batch, "WORTHWHILE", 60.0)  # short, even on a crowded machine

    async def main(lab: Packed) -> tuple[list[Any], list[Event]]:
        made = (command("sh", "-c", f"echo {n}").needs(cores=1) for n in range(70))
        return await lab.run(*made), lab.pool.job.ledger.events

    found, events = packed(tmp_path, main)
    assert [each.output for each in found] == [f"{n}\n" for n in range(70)]
    assert sum(each.get("what") == "busy" for each in events) < 60, "messages to the nodes"


def test_a_task_that_fails_in_a_batch_says_where(tmp_path: Path) -> None:
    async def main(lab: Packed) -> None:
        await lab.run(*(task(remote.unless, n, 500).needs(cores=1) for n in range(100)))
        with pytest.raises(ValueError, match="90") as failed:
            await lab.run(*(task(remote.unless, n, 90).needs(cores=1) for n in range(100)))
        notes = "\n".join(failed.value.__notes__)
        assert "in the task unless on node n" in notes
        assert "remote.py" in notes
        (after,) = await lab.run(task(remote.unless, 1, 500).needs(cores=8))
        assert after == 1, "all cores are free again"

    packed(tmp_path, main)


def test_a_task_that_dies_in_a_batch_runs_again_by_itself(tmp_path: Path) -> None:
    async def main(lab: Packed) -> list[Any]:
        marker = str(tmp_path / "marker")
        await lab.run(*(task(remote.die_once, "/").needs(cores=1) for _ in range(50)))
        tasks = [task(remote.die_once, "/").needs(cores=1) for _ in range(100)]
        return await lab.run(*tasks, task(remote.die_once, marker).needs(cores=1))

    assert packed(tmp_path, main) == ["survived"] * 101


def test_a_batch_that_takes_too_long_leaves_the_rest_to_others() -> None:
    calls: list[Called] = [(abs, (-n,), {}) for n in range(5)]
    calls[1] = (time.sleep, (0.02,), {})
    made = run_calls(None, calls, limit=0.01)
    assert [each.value for each in made] == [0, None]
    assert made[1].seconds >= 0.02
    assert len(run_calls(None, calls)) == 5


def test_a_lost_node_of_several_that_were_granted_together_comes_back(tmp_path: Path) -> None:
    async def main(lab: Packed) -> int:
        cluster = lab.pool.cluster
        assert isinstance(cluster, LocalCluster)
        for _ in range(2):
            os.kill(cluster.pids()["n2"], signal.SIGKILL)
            while lab.pool.size == 2:
                await lab.pool.world.sleep(0.01)
            while lab.pool.size < 2:
                await lab.pool.world.sleep(0.01)
        found = await lab.run(*(task(remote.mine, 0.2).needs(cores=8) for _ in range(2)))
        assert len({each["pid"] for each in found}) == 2
        return lab.pool.size

    assert packed(tmp_path, main, nodes=2) == 2


def test_a_killed_nursery_costs_its_tasks_one_attempt(tmp_path: Path) -> None:
    async def main(lab: Packed) -> int:
        killer = task(remote.kill_parent_once, str(tmp_path / "marker")).needs(cores=1)
        assert await lab.run(killer) == ["survived"]
        return sum(each.what == "busy" for each in lab.pool.job.ledger.intervals())

    assert packed(tmp_path, main) == 2


def test_a_nursery_that_does_not_answer_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nursery, "LIMIT", 0.2)
    (tmp_path / "stuck.py").write_text("import time; time.sleep(600)")
    preparation = {"path": [str(tmp_path), *sys.path], "modules": ["stuck"]}
    made = nursery.Nursery(1, {"preparation": preparation})
    with pytest.raises(TimeoutError):
        made.fork([], [])
    assert made._process.wait(10) == -signal.SIGKILL


def test_a_task_that_closes_its_pipes_is_killed(tmp_path: Path) -> None:
    async def main(lab: Packed) -> list[Any]:
        with pytest.raises(NodeLost):
            await lab.run(task(remote.close_pipes).needs(cores=1))
        return await lab.run(*(task(remote.add, n).needs(cores=1) for n in range(8)))

    assert packed(tmp_path, main) == list(range(8))
