"""Of two adjacent periods, each second and each task counts in one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.payloads.payload import Encoded
from qtide.service import records
from qtide.service.queries import usage
from qtide.service.records import Draft
from qtide.service.store import in_memory
from qtide.service.task import Booking, Ending, TaskState
from tests.service.device.test_queue import task

NOW = 1000.0
occupations = st.lists(st.tuples(st.floats(10.0, 999.0), st.floats(0.001, 50.0)), max_size=20)


@given(occupations, st.lists(st.floats(0.0, 1000.0), max_size=5), st.booleans())
def test_periods_add_up_to_the_whole(
    ends: list[tuple[float, float]], cuts: list[float], running: bool
) -> None:
    db = in_memory()
    for number, (ended, used) in enumerate(ends):
        one = task(str(number))
        records.insert(one, Draft(Encoded("burst", b""), ""))(db)
        one.unbooked.append(Booking(ended - used, used))
        assert records.finish(one, Ending(TaskState.DONE, ended, used))(db)
    if running:
        one = task("running")
        records.insert(one, Draft(Encoded("burst", b""), ""))(db)
        one.started, one.attempts = 990.0, 1
        records.begin(one)(db)
    moments = [0.0, *sorted(cuts), NOW]
    parts = [
        row
        for since, until in pairwise(moments)
        for row in usage(["user"], None, since, until, NOW)(db)
    ]
    whole = sum(min(used, ended) for ended, used in ends) + (10.0 if running else 0.0)
    assert sum(row["qpu_seconds"] for row in parts) == pytest.approx(whole, abs=1e-6)
    assert sum(row["tasks"] - row["running"] for row in parts) == len(ends)


def test_a_task_that_was_only_handed_over_has_used_nothing() -> None:
    db = in_memory()
    records.insert(task("one"), Draft(Encoded("burst", b""), ""))(db)
    assert usage(["user"], None, None, None, NOW)(db) == []
