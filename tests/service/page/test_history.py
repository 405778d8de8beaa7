"""The history of a device: complete, at resolutions that get coarser, and small."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.monitoring import (
    CAUSES,
    INSERT,
    KEPT,
    Activity,
    DeviceHistory,
    Period,
    moments,
    resolution,
)
from qtide.service.page.figures import column
from qtide.service.store import SqliteDatabase, connect, in_memory
from qtide.service.task import TaskState
from tests.service.device.test_queue import task

YEAR = 365 * 86_400
BEGIN = 1_800_000_000


def period(busy: float, waits: list[float]) -> Period:
    made = Activity()
    for number, wait in enumerate(waits):
        one = task(str(number))
        one.started = one.submitted + wait
        made.began(one, wait)
    made.seconds["busy"] = busy
    return made.take()


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_a_quantile_is_right_to_half_a_power_of_two(waits: list[float]) -> None:
    made = period(0.0, waits)
    exact = sorted(waits)[max(0, -(-len(waits) // 2) - 1)]
    assert made.wait(0.5) is not None
    assert exact <= (made.wait(0.5) or 0.0) * (1 + 1e-9) + 1e-9
    assert (made.wait(0.5) or 0.0) <= max(0.001, exact * 2**0.5) * (1 + 1e-9)
    assert made.wait(1.0) == pytest.approx(max(waits), abs=0.001)


@given(st.lists(st.tuples(st.floats(0, 5), st.lists(st.floats(0, 100), max_size=3)), max_size=8))
def test_rows_keep_everything_that_periods_have(rows: list[tuple[float, list[float]]]) -> None:
    db = in_memory()
    total = Period()
    for number, (busy, waits) in enumerate(rows):
        made = period(round(busy, 3), [round(each, 3) for each in waits])
        total.add(made)
        db.execute(INSERT, (5, BEGIN + 5 * number, "dev", made.packed()))
    for step in KEPT:  # a coarse resolution is summed up from finer ones
        found = moments(db, step, BEGIN, BEGIN + 100)
        summed = Period()
        for each in found.values():
            summed.add(each)
        assert summed.waits == total.waits
        assert summed.seconds["busy"] == pytest.approx(total.seconds["busy"])
        assert summed.longest == pytest.approx(total.longest)


class Clock:
    """A device and a store of a history, whose time the test decides."""

    state = "idle"
    waiting = running = 0

    def __init__(self) -> None:
        self.why = "queue"
        self.db = in_memory()

    def why_waiting(self) -> str:
        return self.why


class MemoryStore:
    def __init__(self, db: SqliteDatabase) -> None:
        self.db = db

    async def write(self, action: Any) -> Any:
        return action(self.db)


def step(coroutine: Any) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_every_second_is_attributed_once_and_old_rows_get_coarser() -> None:
    clock = Clock()
    activity: dict[str, Activity] = {}
    now = float(BEGIN)
    holders: list[int] = []
    history = DeviceHistory(
        MemoryStore(clock.db),  # type: ignore[arg-type]
        activity,
        {"dev": clock},  # type: ignore[dict-item]
        lambda: now,
        lambda: holders,
    )
    hours = 3
    for second in range(hours * 3600 + 1):
        now = float(BEGIN + second)
        clock.why = "calibration" if second % 600 < 60 else "queue"
        holders = [1] if second >= 3600 else []
        step(history.look())
    found = moments(clock.db, 60, BEGIN, BEGIN + hours * 3600)
    seconds: defaultdict[str, float] = defaultdict(float)
    for each in found.values():
        for cause in CAUSES:
            seconds[cause] += each.seconds[cause]
    assert sum(seconds.values()) == pytest.approx(hours * 3600, abs=5)
    assert seconds["calibration"] == pytest.approx(hours * 360, abs=20)
    assert seconds["nobody"] == pytest.approx(3600 * 0.9, abs=10)
    assert seconds["clients"] == pytest.approx((hours - 1) * 3600 * 0.9, abs=10)
    rows = Counter(row[0] for row in clock.db.execute("SELECT resolution FROM history"))
    assert rows[5] <= KEPT[5] / 5 + 24
    assert (rows[60], rows[600], rows[3600]) == (180, 18, 3)


def test_a_task_counts_as_it_runs_and_not_again_at_its_end() -> None:
    clock, activity = Clock(), Activity()
    activity.look(clock, 0.0, holders=False)  # type: ignore[arg-type]
    one = task("one")
    one.started, one.submitted = 1.0, 0.0
    activity.began(one, 1.0)
    clock.running = 1
    for now in (2.0, 3.0, 4.0):
        activity.look(clock, now, holders=False)  # type: ignore[arg-type]
    assert activity.seconds["busy"] == 3.0
    one.state, one.ended, one.used = TaskState.DONE, 4.5, 3.5
    activity.ended(one)
    clock.running = 0
    activity.look(clock, 5.0, holders=False)  # type: ignore[arg-type]
    assert activity.seconds["busy"] == pytest.approx(3.5)
    assert sum(activity.seconds[each] for each in CAUSES) == pytest.approx(5.0)


def test_a_task_whose_end_is_still_being_stored_counts_in_full() -> None:
    clock, activity = Clock(), Activity()
    activity.look(clock, 0.0, holders=False)  # type: ignore[arg-type]
    one = task("one")
    one.started, one.submitted = 0.5, 0.0
    activity.began(one, 0.5)
    activity.look(clock, 1.0, holders=False)  # type: ignore[arg-type]  # it left the device at 0.9
    one.state, one.ended, one.used = TaskState.DONE, 1.2, 0.4
    activity.ended(one)
    activity.look(clock, 2.0, holders=False)  # type: ignore[arg-type]
    assert activity.seconds["busy"] == pytest.approx(0.4)
    assert sum(activity.seconds[each] for each in CAUSES) == pytest.approx(2.0)


def test_resolutions_follow_the_age() -> None:
    now = float(BEGIN)
    ages = {60.0: 5, 3600.0: 5, 7200.0: 60, 86_400.0: 60, 3 * 86_400.0: 600, 40 * 86_400.0: 3600}
    assert {age: resolution(now - age, now) for age in ages} == ages


def test_a_device_and_year_take_at_most_two_megabytes(tmp_path: Path) -> None:
    """The rows that are there after a year, with busy hours and quiet ones."""
    chance = random.Random(1)
    with closing(connect(tmp_path / "store.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = (tmp_path / "store.sqlite").stat().st_size
        db.execute("BEGIN")
        for resolution_, kept in KEPT.items():
            for at in range(min(kept, YEAR), 0, -resolution_):
                waits = [chance.lognormvariate(0, 2) for _ in range(chance.choice((0, 3, 12)))]
                made = period(chance.random() * resolution_, waits)
                made.seconds["nobody"] = resolution_ - made.seconds["busy"]
                made.tasks["done"] = len(waits)
                db.execute(INSERT, (resolution_, BEGIN - at, "superconducting-20", made.packed()))
        db.execute("COMMIT")
    assert (tmp_path / "store.sqlite").stat().st_size - before <= 2e6


def test_the_newest_column_goes_on_as_the_one_before_it() -> None:
    drained = Period(defaultdict(float, maintenance=5.0, wanted=5.0))
    newest = column({}, {BEGIN: drained}, BEGIN + 5, 5, 5)  # its own period is not written yet
    assert newest == {"busy": {}, "idle": {"maintenance": 5.0}}
    assert column({}, {}, BEGIN, 5, 5)["idle"] == {"unknown": 5.0}
