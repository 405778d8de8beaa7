"""The queue of the embedded and the simulated cluster."""

from pathlib import Path
from typing import Any

import pytest

from qtide import pretend
from qtide.backends.clusters.simulated import Delays, Loss
from qtide.core.errors import NodeLost, NotEnoughNodes
from tests.backends.works import call
from tests.bench import Bench
from tests.core.invariant import check


def work(seconds: float, value: Any = "done") -> Any:
    pretend(seconds)
    if isinstance(value, Exception):
        raise value
    return value


def test_a_grant_gives_nodes_that_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    job = bench.job()

    async def main() -> Any:
        allocation = await bench.cluster.request(job, 2)
        result = await allocation.nodes[0].run(call(job, work, 5))
        await allocation.release()
        return result, bench.world.now()

    assert bench.run(main()) == ("done", 5)
    held = [span for span in job.ledger.intervals() if span.what == "held"]
    assert [(span.lane, span.seconds) for span in held] == [("node/n1", 5), ("node/n2", 5)]


def test_a_tasks_exception_reaches_whoever_waits(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    job = bench.job()

    async def main() -> None:
        allocation = await bench.cluster.request(job, 1)
        try:
            await allocation.nodes[0].run(call(job, work, 1, ValueError("no")))
        finally:
            await allocation.release()

    with pytest.raises(ValueError, match="no"):
        bench.run(main())


def test_first_come_first_served(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    order: list[str] = []

    async def one(name: str, nodes: int) -> None:
        allocation = await bench.cluster.request(bench.job(name), nodes)
        order.append(name)
        await bench.world.sleep(10)
        await allocation.release()

    async def main() -> None:
        await bench.world.all_of([one("a", 2), one("b", 3), one("c", 1)])

    bench.run(main())
    assert order == ["a", "b", "c"]  # c would fit beside a, but b was there before
    assert bench.world.now() == 30
    assert check(bench.intervals(), nodes=3, slots=1) == _unrun(bench)


def _unrun(bench: Bench) -> list[str]:
    """These tests hold nodes without a run around: only that may be found."""
    found = check(bench.intervals(), nodes=3, slots=1)
    return [each for each in found if "run" in each]


def test_after_its_patience_a_request_takes_fewer(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def main() -> list[tuple[int, float]]:
        await bench.cluster.request(bench.job("a"), 2)
        b = await bench.cluster.request(bench.job("b"), 3, least=1, patience=5)
        seen = [(len(b.nodes), bench.world.now())]
        none = await bench.cluster.request(bench.job("c"), 1, least=0, patience=2)
        return [*seen, (len(none.nodes), bench.world.now())]

    assert bench.run(main()) == [(1, 5), (0, 7)]


def test_who_can_do_with_none_does_not_wait_behind_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def main() -> tuple[int, float]:
        await bench.cluster.request(bench.job("a"), 3)
        bench.world.start(bench.cluster.request(bench.job("b"), 3))
        await bench.world.sleep(1)
        none = await bench.cluster.request(bench.job("c"), 2, least=0, patience=4)
        return len(none.nodes), bench.world.now()

    assert bench.run(main()) == (0, 5)


def test_more_nodes_than_there_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    with pytest.raises(NotEnoughNodes, match="needs 4 nodes, but the cluster has 3"):
        bench.run(bench.cluster.request(bench.job(), 4))


def test_a_cancelled_request_leaves_the_queue(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def main() -> int:
        first = await bench.cluster.request(bench.job("a"), 3)
        waiting = bench.world.start(bench.cluster.request(bench.job("b"), 3))
        await bench.world.sleep(1)
        await bench.world.cancel([waiting])
        await first.release()
        return len((await bench.cluster.request(bench.job("c"), 3)).nodes)

    assert bench.run(main()) == 3


def test_a_request_cancelled_just_as_it_is_granted_gives_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delays=Delays(start=5))

    async def main() -> int:
        waiting = bench.world.start(bench.cluster.request(bench.job("a"), 3))
        await bench.world.sleep(1)
        await bench.world.cancel([waiting])
        return len((await bench.cluster.request(bench.job("b"), 3)).nodes)

    assert bench.run(main()) == 3


def test_starting_and_releasing_are_held_time_waiting_for_a_grant_is_not(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delays=Delays(grant=1, start=2, release=3))

    async def main() -> float:
        allocation = await bench.cluster.request(bench.job(), 1)
        ready = bench.world.now()
        await allocation.release()
        return ready

    assert bench.run(main()) == 3
    assert bench.intervals()[-1].seconds == 5


def test_a_node_that_dies_is_heard_of_and_its_late_answer_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, losses=[Loss(at=5, node="n1", back=20, answers=True)])
    job = bench.job()

    async def main() -> int:
        allocation = await bench.cluster.request(job, 1)
        with pytest.raises(NodeLost, match="node n1 died"):
            await allocation.nodes[0].run(call(job, work, 10))
        await bench.world.sleep(10)
        assert allocation.nodes[0].refused == 1
        await allocation.release()
        await bench.world.sleep(20)
        return bench.cluster.size

    assert bench.run(main()) == 3


def test_a_request_that_lost_its_nodes_for_good_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, losses=[Loss(at=5, node="n3")])

    async def main() -> None:
        await bench.cluster.request(bench.job("a"), 1)
        await bench.cluster.request(bench.job("b"), 3)

    with pytest.raises(NotEnoughNodes, match="the cluster has 2"):
        bench.run(main())


def test_the_expected_wait_is_none_while_nodes_are_free(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def main() -> list[float]:
        free = bench.cluster.expected_wait(3)
        await bench.cluster.request(bench.job("a"), 3)
        bench.world.start(bench.cluster.request(bench.job("b"), 1))
        await bench.world.sleep(7)
        return [free, bench.cluster.expected_wait(1)]

    assert bench.run(main()) == [0, 7]


def test_a_start_is_told_from_work(tmp_path: Path) -> None:
    bench = Bench(tmp_path, delays=Delays(start=3))
    job = bench.job()

    async def main() -> None:
        allocation = await bench.cluster.request(job, 1)
        await allocation.nodes[0].run(call(job, work, 5))
        await allocation.release()

    bench.run(main())
    spans = {(span.what, span.start, span.end) for span in job.ledger.intervals()}
    assert {("held", 0, 8), ("starting", 0, 3), ("busy", 3, 8)} <= spans
    assert job.preparation.seconds == 3
