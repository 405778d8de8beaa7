"""The replay, on a performer that calls tasks in its own process."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from qtide import classical, program, quantum, task, together
from qtide.core.errors import QtideError
from qtide.core.job import JobContext
from qtide.core.ledger import Ledger
from qtide.core.values import Values
from qtide.core.world.virtual import VirtualWorld
from qtide.programs.journal import Journal
from qtide.programs.phase import Phase, Quantum, Task
from qtide.programs.program import Program
from qtide.programs.replay import CandidateChoice, Replay


class Direct:
    """Calls the tasks, and remembers which phases it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def perform(self, phase: Phase, key: str) -> Any:
        self.asked.append(key)
        if isinstance(phase, Quantum):
            return phase.payload
        return [each.function(*each.args, **each.kwargs) for each in phase.tasks]

    async def choose(self, phase: Quantum, otherwise: Task[Any], key: str) -> CandidateChoice:
        return CandidateChoice("task", f"{otherwise.name} is at hand")


def play(folder: Path, program: Program, *args: Any) -> tuple[Any, list[str]]:
    """One lifetime of a driver: the result and the phases that really ran."""
    world, performer = VirtualWorld(), Direct()
    journal = Journal(folder / "journal", program.name)
    job = JobContext("job", Ledger("job", world.now), Values(folder / "values"))
    try:
        return world.run(
            Replay(world, performer, journal, job).play(program(*args))
        ), performer.asked
    finally:
        journal.close()


def double(number: int) -> int:
    return 2 * number


def fail(text: str) -> None:
    raise ValueError(text)


def unstorable() -> Any:
    return (each for each in [1])


@program
async def loop(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += await task(double, number)
        total += await quantum(number)
    return total


@program
async def side_by_side() -> list[Any]:
    async def branch(number: int) -> int:
        first = await task(double, number)
        return int(await quantum(first))

    return list(await together(branch(1), branch(2), classical(task(double, 5)), quantum("q")))


@program
async def catches() -> str:
    try:
        await together(task(double, 1), task(fail, "no"))
    except ValueError as error:
        said = str(error)
    return said + str(await quantum("after"))


@program
async def lets_out() -> None:
    await task(double, 1)
    await task(fail, "no")


def test_a_replay_takes_finished_phases_from_the_journal(tmp_path: Path) -> None:
    first = play(tmp_path, loop, 2)
    assert first == (3, ["1", "2", "3", "4"])
    assert play(tmp_path, loop, 2) == (3, [])
    assert play(tmp_path, loop, 3) == (9, ["5", "6"])


def test_keys_are_places_in_the_program(tmp_path: Path) -> None:
    value, asked = play(tmp_path, side_by_side)
    assert value == [2, 4, [10], "q"]
    assert sorted(asked) == ["1.1.1", "1.1.2", "1.2.1", "1.2.2", "1.3", "1.4"]
    assert play(tmp_path, side_by_side) == (value, [])


def test_a_caught_failure_is_part_of_the_past(tmp_path: Path) -> None:
    assert play(tmp_path, catches) == ("noafter", ["1.1", "1.2", "2"])
    assert play(tmp_path, catches) == ("noafter", [])


def test_a_failure_that_nobody_caught_is_tried_again(tmp_path: Path) -> None:
    for ran in (["1", "2"], ["2"]):
        world, performer = VirtualWorld(), Direct()
        journal = Journal(tmp_path / "journal", "lets_out")
        job = JobContext("job", Ledger("job", world.now), Values(tmp_path))
        with pytest.raises(ValueError, match="no"):
            world.run(Replay(world, performer, journal, job).play(lets_out()))
        journal.close()
        assert performer.asked == ran


def test_a_changed_program_is_named_with_both_sides(tmp_path: Path) -> None:
    play(tmp_path, loop, 1)

    @program
    async def loop_changed() -> None:
        await task(double, 0)
        await task(fail, "never runs")

    loop_changed.function.__name__ = "loop"
    with pytest.raises(QtideError, match=r"phase 2 is «quantum int» .* asks for «classical fail»"):
        play(tmp_path, loop_changed)


def test_a_program_may_not_swallow_a_failure_of_the_run(tmp_path: Path) -> None:
    play(tmp_path, loop, 1)

    @program
    async def stubborn() -> str:
        try:
            await task(fail, "never runs")
        except Exception:
            return "swallowed"
        return ""

    stubborn.function.__name__ = "loop"
    with pytest.raises(QtideError, match="no longer fits"):
        play(tmp_path, stubborn)


def test_a_result_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    @program
    async def bad() -> None:
        await task(unstorable)

    with pytest.raises(QtideError, match="result of the phase «unstorable» cannot be stored"):
        play(tmp_path, bad)


class Foreign:
    def __await__(self) -> Generator[str, None, None]:
        yield "a foreign thing"


def test_a_foreign_await_is_named(tmp_path: Path) -> None:
    @program
    async def foreign() -> None:
        await Foreign()

    with pytest.raises(QtideError, match=r"test_replay.py:\d+: .*'a foreign thing'; .* only task"):
        play(tmp_path, foreign)


def test_phases_refuse_what_they_are_not_made_for() -> None:
    with pytest.raises(TypeError, match="a function and its arguments"):
        task(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="classical\\(\\) takes task"):
        classical(double)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="at least one task"):
        classical()
    with pytest.raises(TypeError, match="together\\(\\) takes phases"):
        together(3)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="at least one node"):
        task(double, 1).on(0)
    with pytest.raises(TypeError, match="async function"):
        program(double)  # type: ignore[arg-type]


def test_labels_of_several_payloads_say_what_and_how_many() -> None:
    for payloads, label in ((["a", "b"], "2 × str"), (["a"], "str"), ([], "list")):
        phase = quantum(payloads)
        phase.use()
        assert phase.label == label


def test_labels_count_equal_tasks() -> None:
    phase = classical(task(double, 1), task(double, 2), task(fail, ""))
    assert phase.label == "2 × double + fail"
    assert phase.nodes == 3
