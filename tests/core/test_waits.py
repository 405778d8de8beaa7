"""How long a request should wait: by those that stand in the queue, and the last that did."""

import pytest

from qtide.core.forecasts import RECENT, Waits


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


def wait(waits: Waits, clock: Clock, seconds: float) -> None:
    with waits.standing():
        clock.time += seconds


def test_nothing_is_known_at_first(clock: Clock) -> None:
    assert Waits(clock).expected() == 0.0


def test_the_mean_of_the_last_waits(clock: Clock) -> None:
    waits = Waits(clock)
    wait(waits, clock, 1000.0)
    for number in range(RECENT):
        wait(waits, clock, float(number))
    assert waits.expected() == sum(range(RECENT)) / RECENT


def test_who_waits_now_counts_with_the_time_so_far(clock: Clock) -> None:
    waits = Waits(clock)
    wait(waits, clock, 2.0)
    with waits.standing():
        clock.time += 7.0
        assert waits.expected() == 7.0


def test_a_scheduler_is_believed_only_if_asked(clock: Clock) -> None:
    waits = Waits(clock)
    with waits.standing() as place:
        place.announced = 60.0
        clock.time += 1.0
        assert (waits.expected(), waits.expected(announced=True)) == (1.0, 60.0)


def test_a_request_that_was_given_up_says_nothing(clock: Clock) -> None:
    waits = Waits(clock)
    with pytest.raises(TimeoutError), waits.standing():
        clock.time += 30.0
        raise TimeoutError
    assert waits.expected() == 0.0


def test_what_was_forgotten_counts_no_more(clock: Clock) -> None:
    waits = Waits(clock)
    wait(waits, clock, 5.0)
    waits.forget()
    assert waits.expected() == 0.0
