"""Tasks and payloads with a time limit, under every strategy, in virtual time."""

from pathlib import Path
from typing import Any

import pytest

from qtide import TimedOut, classical, pretend, program, quantum, task
from qtide.backends.clusters.simulated import Delays
from qtide.backends.payloads.payload import Burst
from qtide.programs.journal import Journal
from qtide.programs.program import Program
from qtide.programs.replay import Replay
from qtide.strategies.strategy import STRATEGIES, strategy
from tests.bench import Bench

CALLS: list[float] = []


def work(seconds: float, rank: int = 0, size: int = 1) -> float:
    CALLS.append(seconds)
    pretend(seconds)
    return seconds


@program
async def limited() -> list[Any]:
    results: list[Any] = []
    for phase in (
        classical(task(work, 2.0), task(work, 100.0)).within(5),
        task(work, 100.0).on(2).within(5),
        task(work, 2.0).on(2).within(5),
        quantum(Burst(100.0)).within(5),
        quantum(Burst(2.0, answer=7)).within(5),
    ):
        try:
            results.append(await phase)
        except TimedOut as error:
            results.append(str(error))
    return results


@program
async def unlimited() -> Any:
    return await task(work, 100.0).within(5)


LATE = "the task work ran for longer than its limit of 5 s"
RESULTS = [LATE, LATE, [2.0, 2.0], "the QPU had no answer to the Burst within 5 s", 7]


def play(bench: Bench, name: str, program: Program) -> Any:
    """One lifetime of a driver."""
    journal = Journal(bench.folder / f"journal-{name}", program.name)

    async def main() -> Any:
        performer = strategy(name, bench.assignment(nodes=2), {})
        replay = Replay(bench.world, performer, journal, performer.job)
        try:
            await performer.open()
            return await replay.play(program())
        finally:
            await performer.close()

    try:
        return bench.run(main())
    finally:
        journal.close()


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_what_takes_too_long_is_ended_and_the_journal_knows(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, nodes=2, delays=Delays(start=0.5))
    assert play(bench, name, limited) == RESULTS
    assert bench.world.now() < 60
    CALLS.clear()
    assert play(Bench(tmp_path, nodes=2), name, limited) == RESULTS
    assert CALLS == []


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_a_limit_that_nobody_caught_is_tried_again(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        CALLS.clear()
        with pytest.raises(TimedOut, match=LATE) as caught:
            play(Bench(tmp_path), name, unlimited)
        assert CALLS == [100.0]
        assert caught.value.__notes__[0].startswith("in the task work on node n")


def test_a_node_that_was_interrupted_starts_anew_before_its_next_task(tmp_path: Path) -> None:
    bench = Bench(tmp_path, nodes=2, delays=Delays(start=0.5))
    play(bench, "static", limited)
    starts = [each for each in bench.intervals() if each.what == "starting"]
    assert [(each.start, each.end) for each in starts][2:] == [
        (5.5, 6.0),  # the task of 100 s alone; then both ranks
        (11.0, 11.5),
        (11.0, 11.5),
    ]


def test_a_limit_is_a_number_of_seconds() -> None:
    for wrong in (0, -1, float("nan"), float("inf"), True, "5"):
        with pytest.raises(ValueError, match=r"within\(\) takes a number of seconds above 0, not"):
            task(work, 1.0).within(wrong)  # type: ignore[arg-type]
    both = task(work, 1.0).within(5).on(2)
    assert (both.limit, both.nodes) == (5.0, 2)
    both.use()
