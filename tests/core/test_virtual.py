"""What holds in virtual time alone."""

import gc
from asyncio import CancelledError, InvalidStateError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.world.virtual import Stuck, VirtualTask, VirtualWorld
from qtide.core.world.world import Future


def trace(seed: int | None, delays: list[float]) -> list[tuple[float, int]]:
    world = VirtualWorld(seed)
    seen: list[tuple[float, int]] = []

    async def walker(number: int, delay: float) -> None:
        for _ in range(3):
            await world.sleep(delay)
            seen.append((world.now(), number))

    async def main() -> None:
        await world.all_of([walker(*each) for each in enumerate(delays)])

    world.run(main())
    return seen


delays = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), min_size=1, max_size=8)


@given(delays, st.one_of(st.none(), st.integers(0, 99)))
def test_the_same_seed_gives_the_same_order(delays: list[float], seed: int | None) -> None:
    assert trace(seed, delays) == trace(seed, delays)


@given(delays, st.integers(0, 99))
def test_time_never_runs_backward_and_nothing_is_lost(delays: list[float], seed: int) -> None:
    seen = trace(seed, delays)
    assert [when for when, _ in seen] == sorted(when for when, _ in seen)
    assert sorted(seen) == sorted(trace(None, delays))


def test_seeds_shuffle_what_happens_at_the_same_moment() -> None:
    orders = {tuple(trace(seed, [1.0] * 4)) for seed in range(20)}
    assert len(orders) > 1


def test_a_world_without_events_says_that_it_is_stuck() -> None:
    world = VirtualWorld()

    async def main() -> None:
        await world.future()

    with pytest.raises(Stuck):
        world.run(main())


def test_ctrl_c_is_no_failure_of_the_task_that_runs_at_that_moment() -> None:
    world = VirtualWorld()

    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        world.start(interrupted())
        await world.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        world.run(main())


def test_a_run_ends_at_its_limit() -> None:
    world = VirtualWorld()

    async def main() -> None:
        while True:
            await world.sleep(1)

    with pytest.raises(TimeoutError):
        world.run(main(), until=10)
    assert world.now() == 10


def test_a_future_is_answered_once() -> None:
    future = VirtualWorld().future()
    future.set_result(1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)


def test_a_result_is_there_only_when_done() -> None:
    with pytest.raises(InvalidStateError):
        VirtualWorld().future().result()


def test_a_cancelled_sleeper_does_not_wake_at_its_old_time() -> None:
    world = VirtualWorld()
    woken = []

    async def sleeper() -> None:
        try:
            await world.sleep(10)
        except BaseException:
            await world.sleep(20)
            woken.append(world.now())

    async def main() -> None:
        task = world.start(sleeper())
        await world.sleep(1)
        task.cancel()
        await world.settled([task])

    world.run(main())
    assert woken == [21]


ACTIONS = st.lists(
    st.one_of(
        st.floats(0, 2).map(lambda seconds: ("sleep", seconds)),
        st.integers(0, 3).map(lambda number: ("cancel", number)),
        st.integers(0, 3).map(lambda number: ("await", number)),
        st.just(("fail", 0)),
    ),
    max_size=6,
)


class Crowd:
    """Tasks that sleep, fail, wait for each other and cancel each other, or themselves."""

    def __init__(self, world: VirtualWorld, stubborn: bool) -> None:
        self.world = world
        self.stubborn = stubborn
        self.tasks: list[VirtualTask[str]] = []

    async def main(self, scripts: list[list[tuple[str, float]]]) -> list[bool]:
        self.tasks += [self.world.start(self.work(script)) for script in scripts]
        await self.world.sleep(100)
        return [task.done() for task in self.tasks]

    async def work(self, script: list[tuple[str, float]]) -> str:
        for what, value in script:
            try:
                await self.act(what, value)
            except CancelledError:
                if not self.stubborn:
                    raise
        return "ended"

    async def act(self, what: str, value: float) -> None:
        if what == "sleep":
            await self.world.sleep(value)
        elif what == "fail":
            raise ValueError
        elif value < len(self.tasks):
            await self.meet(what, self.tasks[int(value)])

    async def meet(self, what: str, other: VirtualTask[str]) -> None:
        if what == "cancel":
            other.cancel()
        else:
            both: list[Future[Any]] = [other, self.world.start(self.world.sleep(1.0))]
            await self.world.first_of(both)


@given(st.lists(ACTIONS, min_size=1, max_size=4), st.booleans(), st.integers(0, 9))
def test_whoever_cancels_whom_every_task_ends_once_and_the_world_goes_on(
    scripts: list[list[tuple[str, float]]], stubborn: bool, seed: int
) -> None:
    world = VirtualWorld(seed)
    crowd = Crowd(world, stubborn)
    assert all(world.run(crowd.main(scripts)))
    for task in crowd.tasks:
        outcome = task.exception()
        assert isinstance(outcome, (CancelledError, ValueError)) or task.result() == "ended"


def test_what_an_alarm_raises_ends_the_run() -> None:
    world = VirtualWorld()

    async def main() -> None:
        world.alarm(1, lambda: 1 // 0)
        await world.sleep(2)

    with pytest.raises(ZeroDivisionError):
        world.run(main())
    assert world.now() == 1


def test_tasks_that_have_ended_leave_nothing_to_the_collector() -> None:
    world = VirtualWorld()

    async def work(seconds: float) -> float:
        await world.sleep(seconds)
        return seconds

    async def main() -> None:
        for _ in range(100):
            await world.all_of([work(1), work(2)])

    gc.collect()
    gc.disable()
    try:
        world.run(main())
        assert gc.collect() < 100  # of 200 tasks, each with an event and a coroutine
    finally:
        gc.enable()
