"""What holds in every world, real and virtual."""

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from qtide.core.world.real import RealWorld
from qtide.core.world.virtual import VirtualWorld
from qtide.core.world.world import Future, Lock, Signal, World

Worlds = pytest.mark.parametrize("make", [lambda: RealWorld(0.01), VirtualWorld])
Make = Callable[[], World]


def play(world: World, main: Callable[[World], Coroutine[Any, Any, Any]]) -> Any:
    return world.run(main(world))


async def after(world: World, seconds: float, value: Any) -> Any:
    await world.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


@Worlds
def test_sleep_lets_time_pass(make: Make) -> None:
    async def main(world: World) -> float:
        before = world.now()
        await world.sleep(2.0)
        return world.now() - before

    assert play(make(), main) >= 2.0 - 1e-6


@Worlds
def test_all_of_gives_results_in_order(make: Make) -> None:
    async def main(world: World) -> list[str]:
        return await world.all_of([after(world, 3, "slow"), after(world, 1, "fast")])

    assert play(make(), main) == ["slow", "fast"]


@Worlds
def test_all_of_waits_for_all_and_raises_by_position(make: Make) -> None:
    ended = []

    async def main(world: World) -> None:
        async def witness() -> None:
            await world.sleep(5)
            ended.append("witness")

        late, early = ValueError("late"), ValueError("early")
        works = [witness(), after(world, 3, late), after(world, 1, early)]
        await world.all_of(works)

    with pytest.raises(ValueError, match="late"):
        play(make(), main)
    assert ended == ["witness"]


@Worlds
def test_first_of_returns_the_first_to_end(make: Make) -> None:
    async def main(world: World) -> Any:
        works = [world.start(after(world, 1000, "slow")), world.start(after(world, 1, "fast"))]
        first = await world.first_of(works)
        await world.cancel(works)
        return first.result()

    assert play(make(), main) == "fast"


@Worlds
def test_timeout_gives_the_result_in_time(make: Make) -> None:
    async def main(world: World) -> str:
        return await world.timeout(1000, after(world, 1, "in time"))

    assert play(make(), main) == "in time"


@Worlds
def test_timeout_cancels_what_takes_longer(make: Make) -> None:
    cleaned = []

    async def main(world: World) -> None:
        async def slow() -> None:
            try:
                await world.sleep(100)
            finally:
                cleaned.append(True)

        await world.timeout(1, slow())

    with pytest.raises(TimeoutError):
        play(make(), main)
    assert cleaned == [True]


@Worlds
def test_a_cancelled_task_cleans_up_and_says_so(make: Make) -> None:
    async def main(world: World) -> tuple[bool, list[str]]:
        seen = []

        async def work() -> None:
            try:
                await world.sleep(100)
            except CancelledError:
                await world.sleep(1)
                seen.append("cleaned")
                raise

        task = world.start(work())
        await world.sleep(1)
        await world.cancel([task])
        return task.cancelled(), seen

    assert play(make(), main) == (True, ["cleaned"])


@Worlds
def test_cancelling_a_waiter_cancels_what_it_waits_for(make: Make) -> None:
    async def main(world: World) -> list[str]:
        seen = []

        async def child() -> None:
            try:
                await world.sleep(100)
            finally:
                seen.append("child")

        parent = world.start(world.all_of([child(), child()]))
        await world.sleep(1)
        await world.cancel([parent])
        return seen

    assert play(make(), main) == ["child", "child"]


@Worlds
def test_a_future_wakes_all_who_wait_for_it(make: Make) -> None:
    async def main(world: World) -> list[int]:
        future = world.future()

        async def wait(number: int) -> int:
            return int(await future) + number

        tasks = [world.start(wait(number)) for number in (1, 2)]
        await world.sleep(1)
        future.set_result(10)
        await world.settled(tasks)
        return [task.result() for task in tasks]

    assert play(make(), main) == [11, 12]


@Worlds
def test_offload_computes(make: Make) -> None:
    async def main(world: World) -> int:
        return await world.offload(max, 3, 7)

    assert play(make(), main) == 7


@Worlds
def test_an_alarm_rings_in_time_unless_it_is_cancelled(make: Make) -> None:
    async def main(world: World) -> list[str]:
        rung: list[str] = []
        world.alarm(2, lambda: rung.append("second"))
        world.alarm(1, lambda: rung.append("first"))
        world.alarm(1, lambda: rung.append("never")).cancel()
        await world.sleep(5)
        return rung

    assert play(make(), main) == ["first", "second"]


@Worlds
def test_a_signal_is_waited_for_up_to_a_limit(make: Make) -> None:
    async def main(world: World) -> list[bool]:
        signal = Signal(world)
        seen = [await signal.wait(1)]
        waiting = world.start(signal.wait())
        await world.sleep(1)
        signal.set()
        seen += [await waiting, await signal.wait(0)]
        signal.clear()
        return [*seen, await signal.wait(1)]

    assert play(make(), main) == [False, True, True, False]


@Worlds
def test_a_lock_lets_one_in_at_a_time_in_order_and_survives_a_cancellation(make: Make) -> None:
    async def main(world: World) -> list[int]:
        lock, order, inside = Lock(world), list[int](), list[int]()
        cancelled: Future[None] = world.future()

        async def work(number: int) -> None:
            async with lock:
                inside.append(number)
                assert inside == [number]
                order.append(number)
                await cancelled
                await world.sleep(0.1)
                inside.clear()

        tasks = []
        for number in range(4):
            tasks.append(world.start(work(number)))
            await world.sleep(0.1)
        await world.cancel([tasks[1]])
        cancelled.set_result(None)
        await world.settled(tasks)
        return order

    assert play(make(), main) == [0, 2, 3]


@Worlds
@pytest.mark.parametrize("then", ["end", "fail", "wait", "go on"])
def test_a_task_may_cancel_itself(make: Make, then: str) -> None:
    """It hears of it at its next wait; without one it ends as cancelled, or by its own error."""

    async def main(world: World) -> str:
        own: list[Any] = []

        async def work() -> str:
            await world.sleep(0)
            own[0].cancel()
            if then == "fail":
                raise ValueError
            try:
                if then in ("wait", "go on"):
                    await world.sleep(1)
            except CancelledError:
                if then == "wait":
                    raise
            return "ended"

        own.append(world.start(work()))
        await world.settled(own)
        await world.sleep(1)
        return "cancelled" if own[0].cancelled() else str(own[0].exception() or own[0].result())

    expected = {"end": "cancelled", "fail": "", "wait": "cancelled", "go on": "ended"}
    assert play(make(), main) == expected[then]
