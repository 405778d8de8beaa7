"""The prediction, against a device and jobs that are simulated event by event."""

from __future__ import annotations

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.experiments.sharing.sharing_plan import ClosedLoop


def simulated(loop: ClosedLoop, jobs: int) -> tuple[float, float]:
    """When all have ended, and how long a job has waited in the queue."""
    ready, left = [0.0] * jobs, [int(loop.cycles)] * jobs
    waited, free = [0.0] * jobs, 0.0
    while any(left):
        job = min((n for n in range(jobs) if left[n]), key=lambda n: (ready[n], n))
        start = max(free, ready[job])
        waited[job] += start - ready[job]
        free = start + loop.quantum
        ready[job] = free + loop.classical
        left[job] -= 1
    return max(ready), fmean(waited)


@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 50), st.integers(0, 500))
def test_the_formula_is_what_a_queue_does(jobs: int, cycles: int, quantum: int, rest: int) -> None:
    loop = ClosedLoop(cycles, float(quantum), float(rest))
    total, queue = simulated(loop, jobs)
    assert loop.total(jobs) == pytest.approx(total)
    assert loop.queue(jobs) == pytest.approx(queue)
    assert loop.occupancy(jobs) == pytest.approx(jobs * cycles * quantum / total)


@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 50), st.integers(0, 500))
def test_sharing_gains_at_most_what_fits(jobs: int, cycles: int, quantum: int, rest: int) -> None:
    loop = ClosedLoop(cycles, float(quantum), float(rest))
    gain = jobs * loop.total(1) / loop.total(jobs)
    assert gain <= min(jobs, loop.knee) * (1 + 1e-9)
