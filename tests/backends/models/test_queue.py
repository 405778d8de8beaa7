from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from qtide.backends.models.batch_queue import BatchQueue
from qtide.backends.models.trace import Array, Trace
from tests.backends.models.slow_easy import Job, schedule

NODES = 8


@st.composite
def jobs(draw: DrawFn) -> Job:
    """Few distinct times, so that many things happen at the same moment."""
    run = draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 5.0, 8.0]))
    over = draw(st.sampled_from([0.0, 0.0, 1.0, 4.0, 20.0]))
    submit = draw(st.integers(0, 30))
    return Job(float(submit), draw(st.integers(1, NODES)), run, run + over)


def trace_of(workload: Sequence[Job]) -> Trace:
    return Trace.of((job.submit, job.nodes, job.run, job.limit, 0) for job in workload)


def starts_of(
    workload: Sequence[Job], *, chunk: int = 65_536, nodes: int = NODES, backfill: bool = True
) -> list[float]:
    starts = np.full(len(workload), inf)

    def started(rows: Array) -> None:
        starts[rows[:, 0].astype(int)] = rows[:, 1]

    queue = BatchQueue(nodes, trace_of(workload).chunks(chunk), started, backfill=backfill)
    queue.advance()
    return list(map(float, starts))


@given(st.lists(jobs(), max_size=40), st.booleans(), st.sampled_from([1, 3, 1000]))
def test_every_job_starts_when_the_slow_witness_says(
    workload: list[Job], backfill: bool, chunk: int
) -> None:
    workload = sorted(workload, key=lambda job: job.submit)
    expected = schedule([replace(job) for job in workload], NODES, backfill=backfill)
    assert starts_of(workload, chunk=chunk, backfill=backfill) == expected


def test_a_large_random_trace_has_the_schedule_of_the_slow_witness() -> None:
    random = np.random.default_rng(3)
    workload = []
    submit = 0.0
    for _ in range(1500):
        submit += float(random.exponential(20.0))
        run = float(random.exponential(100.0))
        workload.append(Job(submit, int(random.integers(1, 17)), run, run * random.integers(1, 9)))
    expected = schedule([replace(job) for job in workload], 32)
    assert starts_of(workload, nodes=32) == expected


def test_a_job_that_fits_before_the_shadow_time_is_backfilled() -> None:
    long, blocked, short = Job(0, 6, 10, 10), Job(1, 8, 5, 5), Job(2, 2, 8, 8)
    assert starts_of([long, blocked, short]) == [0.0, 10.0, 2.0]
    assert starts_of([long, blocked, short], backfill=False) == [0.0, 10.0, 15.0]


def test_a_hybrid_job_stands_in_the_same_queue() -> None:
    queue = BatchQueue(NODES, [trace_of([Job(0, 8, 10, 10)])])
    assert queue.advance(1.0) == {}
    slot = queue.ask(4, 100.0, 1.0)
    assert queue.advance(9.0) == {}
    assert queue.advance(50.0) == {slot: 10.0}
    queue.give_back(slot, 3, 12.0)
    assert queue.free == 7
    queue.give_back(slot, 1, 13.0)
    assert queue.advance() == {} and queue.free == NODES


def test_a_request_that_is_held_lets_others_pass_and_is_first_again() -> None:
    queue = BatchQueue(NODES, [])
    first, second = queue.ask(8, 10.0, 0.0), queue.ask(8, 10.0, 0.0)
    assert queue.advance(1.0) == {first: 0.0}
    queue.hold(first, 0.0)
    assert queue.advance(1.0) == {second: 0.0}
    third = queue.ask(8, 10.0, 1.0)
    queue.look_again(first, 2.0)
    assert queue.advance(3.0) == {}
    queue.give_back(second, 8, 4.0)
    assert queue.advance(5.0) == {first: 4.0}
    queue.give_back(first, 8, 6.0)
    assert queue.advance(7.0) == {third: 6.0}


def test_a_request_that_is_withdrawn_no_longer_blocks() -> None:
    queue = BatchQueue(NODES, [trace_of([Job(0, 5, 10, 10), Job(2, 3, 50, 50)])])
    queue.advance(1.0)
    slot = queue.ask(8, 10.0, 1.0)
    queue.advance(3.0)
    assert queue.queued == 2
    queue.withdraw(slot, 4.0)
    queue.advance(4.0)
    assert (queue.queued, queue.free) == (0, 0)
