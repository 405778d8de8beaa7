"""What each strategy holds and when, against closed forms, in virtual time."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from qtide import classical, pretend, quantum, task, together
from qtide.backends.clusters.simulated import Delays, Loss
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import NotEnoughNodes
from qtide.core.forecasts import Known
from qtide.core.metrics import Metrics, measure
from qtide.programs.journal import Journal
from qtide.programs.replay import Replay
from qtide.strategies.strategy import Assignment, Strategy, strategy, strategy_names
from tests.bench import Bench
from tests.core.invariant import check

LONG, SHORT, SCORE = 30.0, 4.0, 20.0
"""A classical phase of two tasks, then a quantum phase, then one task."""


def work(seconds: float) -> None:
    pretend(seconds)


async def loop(q: float, rounds: int) -> None:
    for _ in range(rounds):
        await classical(task(work, LONG), task(work, SHORT))
        await quantum(Burst(q))
        await task(work, SCORE)


async def play(
    given: Assignment, name: str, program: Coroutine[Any, Any, Any], **options: Any
) -> Any:
    return await perform(given, strategy(name, given, options), program)


async def play_again(
    given: Assignment, program: Coroutine[Any, Any, Any], known: Known | None = None
) -> Known:
    """Run a program under elastic with what an earlier run has learnt; return what it knows."""
    performer = strategy("elastic", given, {})
    if known is not None:
        performer.forecast.recall(known)
    await perform(given, performer, program)
    return performer.forecast.as_json()


async def perform(given: Assignment, performer: Strategy, program: Coroutine[Any, Any, Any]) -> Any:
    job = given.job
    job.values.folder.mkdir(parents=True)
    journal = Journal(job.values.folder / "journal", "p")
    try:
        with job.ledger.span("run", "driver"):
            try:
                await performer.open()
                return await Replay(given.site.world, performer, journal, job).play(program)
            finally:
                await performer.close()
    finally:
        program.close()
        journal.close()


def measured(
    bench: Bench, name: str, q: float, jobs: int = 1, nodes: int = 2, **options: Any
) -> Metrics:
    given = [bench.assignment(f"job{number}", nodes) for number in range(jobs)]
    works = [play(each, name, loop(q, 3), **options) for each in given]
    bench.run(bench.world.all_of(works))
    assert check(bench.intervals(), bench.cluster.size, bench.qpu.slots) == []
    return measure(bench.intervals())


ROUND = LONG + 10 + SCORE


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("static", 2 * 3 * ROUND),
        ("malleable", 3 * (2 * LONG + 10 + SCORE)),
        ("workflow", 3 * (2 * LONG + SCORE)),
        ("split", 2 * 3 * ROUND),
        ("elastic", 3 * (LONG + SHORT + SCORE)),
    ],
)
def test_one_job_holds_what_the_closed_form_says(tmp_path: Path, name: str, held: float) -> None:
    metrics = measured(Bench(tmp_path), name, q=10)
    assert metrics.total == pytest.approx(3 * ROUND)
    assert metrics.nodes_held == pytest.approx(held)


def test_split_gives_the_qpu_back_when_its_block_ends(tmp_path: Path) -> None:
    assert measured(Bench(tmp_path), "split", q=10).slots_held == pytest.approx(30)


def test_static_holds_the_qpu_from_start_to_end(tmp_path: Path) -> None:
    assert measured(Bench(tmp_path), "static", q=10).slots_held == pytest.approx(3 * ROUND)


def test_malleable_goes_on_with_fewer_nodes_after_its_timeout(tmp_path: Path) -> None:
    bench = Bench(tmp_path, nodes=2, slots=2)
    metrics = measured(bench, "malleable", q=0, jobs=2, expand_timeout=6.0)
    # both jobs hold one node each: every classical phase waits in vain, then runs in sequence
    assert metrics.total == pytest.approx(3 * (6 + LONG + SHORT + SCORE))


def test_elastic_shares_nodes_and_qpu_between_two_jobs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, nodes=3, slots=2)
    metrics = measured(bench, "elastic", q=50, jobs=2)
    assert metrics.total == pytest.approx(50 + 3 * (50 + LONG + SCORE))  # the closed loop's time
    assert metrics.nodes_held == pytest.approx(2 * 3 * (LONG + SHORT + SCORE))


def test_elastic_has_its_nodes_back_as_the_quantum_phase_ends(tmp_path: Path) -> None:
    """From the second round on, it knows what comes, and how long a grant takes."""
    slow = Delays(grant=3.0, start=2.0)
    workflow = measured(Bench(tmp_path / "w", delays=slow), "workflow", q=50)
    elastic = measured(Bench(tmp_path / "e", delays=slow), "elastic", q=50)
    assert workflow.total == pytest.approx(3 * (50 + LONG + SCORE) + 6 * 5)
    # two waits of the first round, and the nodes of the second round's first phase come in time
    assert elastic.total == pytest.approx(3 * (50 + LONG + SCORE) + 2 * 5, abs=5.01)


def test_elastic_gives_everything_back_on_an_idle_cluster(tmp_path: Path) -> None:
    metrics = measured(Bench(tmp_path, delays=Delays(start=0.1)), "elastic", q=50)
    assert metrics.nodes_held < 1.05 * metrics.nodes_busy


@pytest.mark.parametrize(("favour", "keeps"), [(1.0, True), (0.9, True), (0.0, False)])
def test_elastic_holds_what_it_has_on_a_crowded_cluster(
    tmp_path: Path, favour: float, keeps: bool
) -> None:
    """Strangers take every node that is given back, for longer than the quantum phase lasts."""
    bench = Bench(tmp_path, nodes=2, slots=1)
    strangers = bench.job("strangers")

    async def crowd() -> None:
        while True:
            allocation = await bench.cluster.request(strangers, 1)
            bench.world.start(leave(allocation))

    async def leave(allocation: Any) -> None:
        await bench.world.sleep(200)
        await allocation.release()

    async def main() -> None:
        others = [bench.world.start(crowd()) for _ in range(3)]
        await bench.world.sleep(1)
        await play(bench.assignment(nodes=1), "elastic", loop(5, 3), time_weight=favour)
        await bench.world.cancel(others)

    bench.run(main())
    spans = [span for span in bench.intervals() if span.job == "job"]
    grants = sum(span.what == "held" and span.lane.startswith("node/") for span in spans)
    assert (grants == 1) is keeps


@pytest.mark.parametrize("name", strategy_names())
def test_phases_run_together(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, nodes=2, slots=2)

    async def side_by_side() -> Any:
        return await together(task(work, 30), quantum(Burst(30, "q")), quantum(Burst(5, "r")))

    result = bench.run(play(bench.assignment(nodes=2), name, side_by_side()))
    assert result == [None, "q", "r"]
    assert check(bench.intervals(), 2, 2) == []
    assert bench.world.now() == pytest.approx(35)


@pytest.mark.parametrize("name", strategy_names())
def test_a_phase_wider_than_the_job_is_spread_over_its_nodes(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, nodes=3)

    async def wide() -> list[Any]:
        return await classical(*(task(work, 10) for _ in range(5)))

    bench.run(play(bench.assignment(nodes=2), name, wide()))
    assert bench.world.now() == pytest.approx(30)
    assert check(bench.intervals(), 2, 1) == []


@pytest.mark.parametrize("name", strategy_names())
def test_a_task_for_more_nodes_than_the_job_may_hold(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, nodes=3)

    async def too_wide() -> None:
        await task(work, 10).on(3)

    with pytest.raises(NotEnoughNodes, match="a task for 3 nodes, but may hold 2"):
        bench.run(play(bench.assignment(nodes=2), name, too_wide()))
    assert bench.cluster.granted == {}


def test_a_payload_is_tried_again_when_the_qpu_fails(tmp_path: Path) -> None:
    bench = Bench(tmp_path, fails=lambda number: number < 3)

    async def once() -> Any:
        return await quantum(Burst(10, "answer"))

    assert bench.run(play(bench.assignment(nodes=1), "workflow", once())) == "answer"
    assert bench.world.now() == 30


@pytest.mark.parametrize("name", strategy_names())
def test_agents_that_never_start_fail_the_run_with_a_sentence(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, unusable=lambda _: True)
    with pytest.raises(NotEnoughNodes, match=r"the agent of node n. did not start"):
        bench.run(play(bench.assignment(), name, loop(10, 2)))
    assert bench.cluster.granted == {}


@pytest.mark.parametrize("name", strategy_names())
def test_an_agent_that_does_not_start_is_replaced(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, unusable=lambda number: number in (1, 4))
    bench.run(play(bench.assignment(), name, loop(10, 2)))
    assert check(bench.intervals(), 3, 1) == []


def test_a_request_that_is_being_withdrawn_is_not_counted_on(tmp_path: Path) -> None:
    """On Slurm that takes its time; the next phase may begin meanwhile."""
    bench = Bench(tmp_path, nodes=2, delays=Delays(withdraw=20))

    async def crowd() -> None:
        await bench.cluster.request(bench.job("stranger"), 1)
        await bench.world.sleep(1e5)

    async def rounds() -> None:
        for _ in range(3):
            await classical(task(work, 2), task(work, 2))
            await quantum(Burst(1))
            await task(work, 2)

    async def main() -> float:
        stranger = bench.world.start(crowd())
        await bench.world.sleep(1)
        await play(bench.assignment(nodes=2), "elastic", rounds(), time_weight=0.0)
        await bench.world.cancel([stranger])
        return bench.world.now()

    assert bench.run(main(), until=1e4) < 60


def test_nodes_asked_for_ahead_are_not_given_back_as_they_arrive(tmp_path: Path) -> None:
    """They come just as the phase begins, before its tasks are in the queue."""
    bench = Bench(tmp_path, nodes=3, delays=Delays(start=5.0))

    async def rounds() -> None:
        for _ in range(6):
            await classical(*(task(work, 20) for _ in range(3)))
            await quantum(Burst(30))

    bench.run(play(bench.assignment(nodes=3), "elastic", rounds()))
    assert bench.world.now() == pytest.approx(5 + 6 * (20 + 30), abs=0.1)


def test_a_narrow_step_between_wide_phases_costs_no_new_start(tmp_path: Path) -> None:
    """A merge has one task; to start the other nodes again would take five seconds each time."""
    bench = Bench(tmp_path, nodes=3, delays=Delays(start=5.0))

    async def rounds() -> None:
        for _ in range(8):
            await classical(*(task(work, 2) for _ in range(6)))
            await task(work, 0.05)

    bench.run(play(bench.assignment(nodes=3), "elastic", rounds()))
    assert bench.world.now() == pytest.approx(5 + 8 * (4 + 0.05), rel=0.02)
    starts = [span for span in bench.intervals() if span.what == "starting"]
    assert len(starts) == 3


def test_a_first_phase_that_waited_for_nodes_is_not_taken_for_a_long_one(tmp_path: Path) -> None:
    """Its wait and start would be idle time of nodes that the phases after it need."""
    bench = Bench(tmp_path, nodes=3, delays=Delays(grant=2.0, start=5.0))

    async def rounds() -> None:
        for _ in range(5):
            for width in (1, 8, 2, 16):
                await classical(*(task(work, 0.5) for _ in range(width)))

    async def main() -> None:
        known = await play_again(bench.assignment("first", 3), rounds())
        await play_again(bench.assignment("second", 3), rounds(), known)

    bench.run(main())
    spans = [each for each in bench.intervals() if each.job == "second"]
    assert sum(each.what == "starting" for each in spans) == 3


def test_a_request_that_the_next_phase_needs_keeps_its_place_in_the_queue(tmp_path: Path) -> None:
    """It was made for tasks that are done by now; a payload later it would be made anew."""
    bench = Bench(tmp_path, nodes=3)

    async def hold(nodes: int, seconds: float) -> None:
        allocation = await bench.cluster.request(bench.job(f"stranger{seconds:g}"), nodes)
        await bench.world.sleep(seconds)
        await allocation.release()

    async def rounds() -> None:
        for _ in range(6):
            await classical(*(task(work, 10) for _ in range(6)))
            await quantum(Burst(0.5))

    async def main() -> float:
        known = await play_again(bench.assignment("first", 3), rounds())
        others = [bench.world.start(hold(2, 75))]
        await bench.world.sleep(1)
        second = bench.world.start(play_again(bench.assignment("second", 3), rounds(), known))
        await bench.world.sleep(1)
        others.append(bench.world.start(hold(2, 300)))  # behind ours
        began = bench.world.now()
        await second
        await bench.world.cancel(others)
        return bench.world.now() - began

    assert bench.run(main()) < 300


def test_static_gets_a_node_back_that_was_lost_and_recovers(tmp_path: Path) -> None:
    """Its nodes are granted together, so the lost one must go back before the others."""
    bench = Bench(tmp_path, nodes=2, losses=[Loss(5.0, "n2", 1.0)])

    async def rounds() -> None:
        for _ in range(4):
            await classical(task(work, 10.0), task(work, 10.0))

    bench.run(play(bench.assignment("job", 2), "static", rounds()))
    assert bench.world.now() < 4 * 10.0 + 10.0
    assert check(bench.intervals(), 2, 1) == []


@pytest.mark.parametrize("name", ["static", "split"])
def test_nodes_that_were_lost_and_not_replaced_are_asked_for_in_the_next_phase(
    tmp_path: Path, name: str
) -> None:
    """Their agents did not start three times in a row, and the phase had no use for them."""
    losses = [Loss(10.0, "n2", 1.0)]
    bench = Bench(tmp_path, nodes=2, losses=losses, unusable=lambda number: number in (3, 4, 5))

    async def rounds() -> None:
        await classical(task(work, 20.0), task(work, 5.0))
        for _ in range(3):
            await classical(task(work, 10.0), task(work, 10.0))

    bench.run(play(bench.assignment("job", 2), name, rounds()))
    assert bench.world.now() == pytest.approx(20.0 + 3 * 10.0, abs=1.0)


@pytest.mark.parametrize("name", strategy_names())
def test_a_phase_asks_again_for_a_node_whose_agent_does_not_start(
    tmp_path: Path, name: str
) -> None:
    """It lasts long enough; without that, one node of two would do all the rest of it."""
    losses = [Loss(5.0, "n2", 1.0)]
    bench = Bench(tmp_path, nodes=2, losses=losses, unusable=lambda number: 3 <= number <= 8)

    async def one() -> None:
        await classical(*(task(work, 10.0) for _ in range(40)))

    bench.run(play(bench.assignment("job", 2), name, one()))
    assert bench.world.now() < 200.0 + 10.0 + 15.0
