"""Of two adjacent periods, each second and each task counts in one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.payloads.payload import Encoded
from qtide.service import queries, records
from qtide.service.queries import usage
from qtide.service.records import Draft
from qtide.service.store import in_memory
from qtide.service.task import Booking, Caller, Ending, TaskState
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


def test_tasks_without_a_charge_hide_no_charges_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor do those of others: a page that is empty is the last one."""
    monkeypatch.setattr(queries, "AT_ONCE", 2)
    db = in_memory()
    for number in range(12):
        one = task(f"{number:02}")
        one.caller = Caller("eve" if number < 9 else "ada")
        records.insert(one, Draft(Encoded("burst", b""), ""))(db)
        used = 1.0 if number in (0, 1, 6, 11) else 0.0
        one.unbooked += [Booking(100.0 + number, used)] if used else []
        state = TaskState.DONE if used else TaskState.CANCELLED
        records.finish(one, Ending(state, 200.0 + number, used))(db)
    for user, charged in ((None, ["00", "01", "06", "11"]), ("ada", ["11"]), ("bob", [])):
        found: list[str] = []
        after = 0
        while rows := queries.charges(user, 0.0, NOW, after)(db):
            found += [row["task"] for row in rows]
            after = rows[-1]["number"]
        assert found == charged


def test_a_user_sees_the_usage_of_no_other() -> None:
    db = in_memory()
    for name in ("ada", "eve"):
        one = task(name)
        one.caller = Caller(name)
        records.insert(one, Draft(Encoded("burst", b""), ""))(db)
        one.unbooked.append(Booking(100.0, 2.0))
        records.finish(one, Ending(TaskState.DONE, 102.0, 2.0))(db)
    (row,) = usage(["user"], "ada", None, None, NOW)(db)
    assert (row["user"], row["tasks"], row["qpu_seconds"]) == ("ada", 1, pytest.approx(2.0))
    assert len(usage(["user"], None, None, None, NOW)(db)) == 2


def test_a_task_that_was_only_handed_over_has_used_nothing() -> None:
    db = in_memory()
    records.insert(task("one"), Draft(Encoded("burst", b""), ""))(db)
    assert usage(["user"], None, None, None, NOW)(db) == []
