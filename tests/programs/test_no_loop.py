"""asyncio inside of a program: each is refused with the word that is to be used instead."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from qtide import program, task
from qtide.programs.replay import NotInAProgram
from tests.programs.test_replay import double, play

TOGETHER, WITHIN, TASK = "`await together(a, b)`", ".within(seconds)`", "`await task("


async def part() -> int:
    return int(await task(double, 1))


async def timeout() -> int:
    async with asyncio.timeout(5):
        return await part()


async def group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(part())


async def in_a_future() -> None:
    await asyncio.get_running_loop().create_future()


USES: dict[str, tuple[Callable[[], Coroutine[Any, Any, Any]], str]] = {
    "gather": (
        lambda: _awaiting(lambda: asyncio.gather(task(double, 1), task(double, 2))),
        TOGETHER,
    ),
    "create_task": (lambda: _awaiting(lambda: asyncio.create_task(part())), TOGETHER),
    "TaskGroup": (group, TOGETHER),
    "timeout": (timeout, WITHIN),
    "wait_for": (lambda: _awaiting(lambda: asyncio.wait_for(task(double, 1), 5)), WITHIN),
    "sleep": (lambda: _awaiting(lambda: asyncio.sleep(1)), TASK),
    "to_thread": (lambda: _awaiting(lambda: asyncio.to_thread(double, 1)), TASK),
    "create_future": (in_a_future, TASK),
}


async def _awaiting(use: Callable[[], Any]) -> Any:
    return await use()


@pytest.mark.parametrize("name", USES)
def test_each_name_of_asyncio_is_refused_with_what_to_use(tmp_path: Path, name: str) -> None:
    use, advice = USES[name]

    @program
    async def mine() -> Any:
        return await use()

    with pytest.raises(NotInAProgram) as refused:
        play(tmp_path, mine)
    sentence = str(refused.value)
    assert "test_no_loop.py:" in sentence
    assert f"a program cannot use asyncio.{name}; " in sentence
    assert advice in sentence


def test_a_bare_yield_to_the_loop_is_refused_with_its_line(tmp_path: Path) -> None:
    @program
    async def mine() -> Any:
        await asyncio.sleep(0)

    line = mine.function.__code__.co_firstlineno + 2
    with pytest.raises(NotInAProgram, match=rf"test_no_loop.py:{line}: .* asyncio.sleep"):
        play(tmp_path, mine)


def test_the_driver_keeps_its_own_loop(tmp_path: Path) -> None:
    async def main() -> bool:
        before = asyncio.get_running_loop()
        play(tmp_path, program(part))
        return asyncio.get_running_loop() is before

    assert asyncio.run(main())
