"""Policies, each on a job that is nothing but its sizes."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from qtide.core.errors import UsageError
from qtide.mpi.sizing import ByEfficiency, ByPhase, ByQuantumEnd, ByQueue, Sizes


@dataclass
class Fake:
    size: int = 1
    sizes: Sizes = field(default_factory=lambda: Sizes(1, 3, 4))
    lead: float = 2.0
    queue: list[int] = field(default_factory=list)

    def others_waiting(self) -> int:
        return self.queue.pop(0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 3, 2), (1, 2.5, 2.5), (1, "3", "3")])
def test_sizes_that_are_none_are_refused(sizes: Any) -> None:
    with pytest.raises(UsageError, match="a job needs whole numbers 1 <= least"):
        Sizes(*sizes)


def test_a_quantum_phase_keeps_the_least_and_a_classical_one_gets_the_preferred() -> None:
    policy = ByPhase()
    assert policy(Fake()) == 3
    policy.phase = "quantum"
    assert policy(Fake(size=3)) == 1


def test_nodes_are_given_back_while_others_wait_and_the_queue_is_not_asked_too_often() -> None:
    clock, job = Clock(), Fake(size=3, queue=[2, 0])
    policy = ByQueue(pause=5, clock=clock)
    assert policy(job) == 1
    clock.now = 4.9
    assert policy(job) == 1
    clock.now = 5.0
    assert policy(job) == 3
    assert job.queue == []


def grown(seconds: dict[int, float], checks: int) -> list[int]:
    """The sizes that a job takes whose step lasts as given for each size."""
    clock, job = Clock(), Fake()
    policy = ByEfficiency(samples=2, clock=clock)
    sizes = []
    for _ in range(checks):
        job.size = policy(job) or job.size
        sizes.append(job.size)
        clock.now += seconds[job.size]
    return sizes


def test_a_job_that_scales_grows_to_the_most() -> None:
    assert grown({1: 12, 2: 6, 3: 4, 4: 3}, 20)[-1] == 4


def test_a_job_that_no_longer_gains_goes_back_and_stays_there() -> None:
    sizes = grown({1: 12, 2: 6, 3: 5.9, 4: 5.9}, 30)
    assert max(sizes) == 3
    assert sizes[-10:] == [2] * 10


def test_nodes_are_asked_for_as_long_ahead_as_the_last_growth_took() -> None:
    remaining = 10.0
    policy = ByQuantumEnd(lambda: remaining)
    assert policy(Fake(size=3)) == 1
    remaining = 2.3
    assert policy(Fake()) == 3
