"""What holds in virtual time alone."""

from asyncio import InvalidStateError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.world.virtual import Stuck, VirtualWorld


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
