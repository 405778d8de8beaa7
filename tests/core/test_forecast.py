"""What a job's own past says: durations of tasks, phases that follow, starts of nodes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.forecasts import HORIZON, STARTS, Durations, Forecast, Need, Phases, PhaseShape
from tests.core.test_waits import Clock

SCATTER = PhaseShape("classical scatter", "scatter", (0, 1, 2))
SOLVE = PhaseShape("quantum bqm", quantum=True)
SCORE = PhaseShape("classical score", "score", (0,))
A, B = ("scatter", 0), ("scatter", 1)


def play(phases: Phases, clock: Clock, *steps: tuple[PhaseShape, float], first: int = 1) -> None:
    for place, (shape, seconds) in enumerate(steps, first):
        with phases.during(shape, str(place)):
            clock.time += seconds


def test_a_task_takes_as_long_as_last_time() -> None:
    clock = Clock()
    tasks = Durations(clock)
    tasks.begin(A)
    clock.time += 4.0
    tasks.learn(A)
    tasks.end(A)
    assert (tasks.last(A), tasks.last(B), tasks.remaining()) == (4.0, 0.0, 0.0)
    tasks.begin(A)
    clock.time += 1.0
    assert tasks.remaining() == 3.0
    clock.time += 9.0
    assert tasks.remaining() == 0.0  # late, but not before it began


def test_a_task_without_a_past_lasts_as_long_again() -> None:
    clock = Clock()
    tasks = Durations(clock)
    tasks.expect([A, B])
    assert tasks.remaining() == 0.0
    tasks.begin(A)
    clock.time += 5.0
    assert tasks.remaining() == 5.0
    assert (tasks.estimate(A), tasks.estimate(B)) == (10.0, None)


def test_a_failed_attempt_teaches_nothing() -> None:
    clock = Clock()
    tasks = Durations(clock)
    tasks.begin(A)
    clock.time += 5.0
    tasks.end(A)
    assert tasks.last(A) == 0.0


def test_the_phase_that_followed_will_follow_again() -> None:
    clock = Clock()
    phases = Phases(clock, Durations(clock))
    cycle = (SCATTER, 10.0), (SOLVE, 120.0), (SCORE, 3.0)
    play(phases, clock, *cycle, cycle[0])
    assert phases.needs("1") == [Need(120.0, 3.0, SCORE), Need(123.0, 10.0, SCATTER)]
    play(phases, clock, cycle[1])
    assert phases.needs("1") == [Need(0.0, 3.0, SCORE), Need(3.0, 10.0, SCATTER)]
    play(phases, clock, cycle[2])
    assert phases.needs("1") == [Need(0.0, 10.0, SCATTER), Need(130.0, 3.0, SCORE)]


def test_what_came_before_tells_which_of_two_phases_follows() -> None:
    """scatter, score, scatter, score, solve: after a score comes a scatter or the payload."""
    clock = Clock()
    phases = Phases(clock, Durations(clock))
    cycle = (SCATTER, 1.0), (SCORE, 2.0), (SCATTER, 1.0), (SCORE, 2.0), (SOLVE, 9.0)
    play(phases, clock, *cycle, *cycle, *cycle[:2])
    assert phases.needs("1")[0] == Need(0.0, 1.0, SCATTER)
    play(phases, clock, *cycle[2:4])
    assert phases.needs("1")[0] == Need(9.0, 1.0, SCATTER)
    assert len(phases.needs("1")) == 4  # one cycle, and no more


def test_what_never_happened_is_not_known() -> None:
    clock = Clock()
    phases = Phases(clock, Durations(clock))
    assert phases.needs("1") == []
    play(phases, clock, (SCATTER, 1.0), (SOLVE, 1.0))
    assert phases.needs("1") == []  # nothing classical came after it


def test_quantum_phases_in_a_circle_are_not_followed_for_ever() -> None:
    clock = Clock()
    phases = Phases(clock, Durations(clock))
    play(phases, clock, *[(SOLVE, 1.0)] * (HORIZON + 2))
    assert phases.needs("1") == []


def test_branches_that_run_together_do_not_follow_each_other() -> None:
    clock = Clock()
    phases = Phases(clock, Durations(clock))
    with phases.during(SCATTER, "1.1.1"), phases.during(SOLVE, "1.2.1"):
        clock.time += 1.0
    with phases.during(SCORE, "1.1.2"):
        clock.time += 1.0
    with phases.during(SCATTER, "1.1.3"):
        assert phases.needs("1.1.3") == [Need(0.0, 1.0, SCORE), Need(1.0, 1.0, SCATTER)]
    assert phases.needs("1.2.1") == []


def test_a_phase_lasts_from_its_first_task_on() -> None:
    """What it waited for nodes before, it need not wait the next time."""
    clock = Clock()
    tasks = Durations(clock)
    phases = Phases(clock, tasks)
    for wait in (30.0, 5.0):
        with phases.during(SCATTER, "1"):
            clock.time += wait
            for place in (A, B):
                tasks.begin(place)
                clock.time += 2.0
        play(phases, clock, (SOLVE, 9.0), first=2)
        assert phases.needs("2") in ([], [Need(0.0, 4.0, SCATTER)])
    assert phases.needs("2") == [Need(0.0, 4.0, SCATTER)]


def test_getting_nodes_takes_the_wait_and_the_start() -> None:
    forecast = Forecast(Clock(), lambda nodes: 10.0 * nodes)
    assert forecast.lead(2) == 20.0
    for seconds in (9.0, *[1.0, 3.0] * (STARTS // 2)):
        forecast.node_started(seconds)
    assert forecast.lead(2) == pytest.approx(22.0)


def test_a_later_run_begins_with_what_was_learnt() -> None:
    clock = Clock()
    before, after = Forecast(clock, lambda _: 0.0), Forecast(clock, lambda _: 0.0)
    play(before.phases, clock, (SCATTER, 10.0), (SOLVE, 120.0), (SCORE, 3.0))
    before.tasks.begin(A)
    clock.time += 4.0
    before.tasks.learn(A)
    after.recall(json.loads(json.dumps(before.as_json())))
    assert after.tasks.known(A) == 4.0
    assert after.tasks.known(B) is None
    play(after.phases, clock, (SCATTER, 10.0))
    assert after.phases.needs("1") == [Need(120.0, 3.0, SCORE)]


def test_what_a_task_imported_is_not_how_long_it_takes() -> None:
    clock = Clock()
    tasks = Durations(clock)
    tasks.begin(A)
    clock.time += 5.0
    tasks.learn(A, besides=3.0)
    assert tasks.last(A) == 2.0


def test_a_node_that_is_given_back_costs_its_release_and_its_start() -> None:
    forecast = Forecast(Clock(), lambda _: 0.0, lambda: (5.0, 6.0, 7.0))
    assert forecast.turnaround() == 0.0
    for start in (1.0, 2.0):
        forecast.node_started(start)
    forecast.node_released(0.5)
    assert forecast.turnaround() == 2.0
    assert forecast.leads() == (6.0, 8.0, 8.0)  # each wait with one of the starts


@given(st.floats(0.0, 50.0), st.floats(0.1, 500.0), st.floats(0.0, 1.0), st.integers(2, 16))
def test_the_size_of_a_task_is_the_cheapest_once_two_sizes_are_known(
    serial: float, parallel: float, weight: float, most: int
) -> None:
    tasks, sizes = Durations(lambda: 0.0), range(1, most + 1)

    def cost(nodes: int) -> float:
        return (weight + (1 - weight) * nodes) * (serial + parallel / nodes)

    for _ in range(2):
        chosen = tasks.best_size("f", sizes, weight)
        assert chosen in sizes
        tasks.learn_size("f", chosen, serial + parallel / chosen)
    best = min(map(cost, sizes))
    assert cost(tasks.best_size("f", sizes, weight)) <= best * (1 + 1e-6) + 1e-9


def test_a_fixed_size_needs_no_knowledge() -> None:
    assert Durations(lambda: 0.0).best_size("f", range(3, 4), 0.5) == 3
