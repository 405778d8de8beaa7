"""What is not awaited: warned about where it is certain, and nowhere else."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qtide import classical, program, quantum, task, together
from qtide.core.errors import QtideError
from qtide.programs.phase import Task
from tests.programs.test_replay import double, play


def discards_a_task() -> None:
    task(double, 1)


def discards_with_a_limit() -> None:
    task(double, 1).within(5).on(2)


def discards_a_phase() -> None:
    classical(
        task(double, 1),
        task(double, 2),
    )


def discards_a_payload() -> None:
    quantum(1)


def discards_both() -> None:
    together(quantum(1), task(double, 1))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (discards_a_task, "task(double, …)"),
        (discards_with_a_limit, "task(double, …)"),
        (discards_a_phase, "classical(2 × double)"),
        (discards_a_payload, "quantum(int)"),
        (discards_both, "together(…)"),
    ],
)
def test_a_statement_without_await_warns_with_its_line(
    statement: Callable[[], None], named: str
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statement()
    (warning,) = caught
    assert str(warning.message).startswith(f"{named} was never awaited")
    assert (warning.filename, warning.lineno) == (
        __file__,
        statement.__code__.co_firstlineno + 1,
    )


def maker() -> list[Task[int]]:
    return [task(double, number) for number in range(4)]


@program
async def chooses() -> Any:
    tasks = maker()
    tasks.pop()
    tasks = tasks[:2]
    spare = task(double, 5)
    results = await classical(*tasks)
    if results == [-1]:
        results = [await spare]
    again = task(double, 7)
    return [results, await again, await again, await together(task(double, 1), quantum(3))]


def test_what_was_only_prepared_warns_about_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert play(tmp_path, chooses)[0] == [[0, 2], 14, 14, [2, 3]]


def test_a_task_in_place_of_its_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"is task\(double, …\) itself: write `await"):
        task(double, task(double, 1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"payload of quantum\(\) is task\(double"):
        quantum(task(double, 1))

    @program
    async def returns() -> Any:
        return task(double, 1)

    with pytest.raises(QtideError, match=r"returns task\(double, …\) itself: write `return await"):
        play(tmp_path, returns)
