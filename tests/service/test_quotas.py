"""Seconds reserved, settled and released add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.configuration import DAY, Quota, Quotas
from qtide.service.quotas import NeverFits, QuotaExceeded, QuotaMeter
from qtide.service.task import Caller
from tests.service.device.test_queue import task

ADA = Caller("ada", "physics")


def test_no_more_tasks_than_a_user_may_have() -> None:
    meter = QuotaMeter(Quotas(user=Quota(tasks=2)))
    meter.accept(ADA)
    meter.accept(ADA)
    with pytest.raises(QuotaExceeded, match="the user ada has 2 tasks"):
        meter.accept(ADA)
    meter.accept(Caller("bob", "physics"))
    meter.count(ADA, -1)
    meter.accept(ADA)


def test_an_account_is_limited_whoever_uses_it() -> None:
    meter = QuotaMeter(Quotas(accounts={"physics": Quota(tasks=1)}))
    meter.accept(ADA)
    with pytest.raises(QuotaExceeded, match="the account physics"):
        meter.accept(Caller("bob", "physics"))
    meter.accept(Caller("bob", "maths"))


def test_seconds_are_reserved_and_unused_ones_are_released() -> None:
    meter = QuotaMeter(Quotas(users={"ada": Quota(qpu_seconds=10.0)}))
    long = task("long", seconds=8.0)
    meter.hold(long, 0.0)
    assert meter.blocked(Caller("ada"), 3.0, 0.0) is not None
    long.used = 1.0
    meter.charge(long, 0.0)
    assert meter.blocked(Caller("ada"), 9.0, 0.0) is None
    assert meter.blocked(Caller("ada"), 9.5, 0.0) is not None


def test_a_task_longer_than_the_daily_limit_is_refused() -> None:
    meter = QuotaMeter(Quotas(user=Quota(qpu_seconds=10.0), account=Quota(qpu_seconds=9.0)))
    meter.check_fits(Caller("ada"), 10.0)
    with pytest.raises(NeverFits, match=r"100 s .* the user ada may use 10 s per day"):
        meter.check_fits(Caller("ada"), 100.0)
    with pytest.raises(NeverFits, match="the account physics may use 9 s"):
        meter.check_fits(ADA, 10.0)


def test_one_that_was_accepted_under_another_limit_runs_alone_on_a_day() -> None:
    meter = QuotaMeter(Quotas(user=Quota(qpu_seconds=10.0)))
    assert meter.blocked(ADA, 100.0, 0.0) is None
    meter.note(ADA, 1.0, 0.0)
    assert meter.blocked(ADA, 100.0, 0.0) is not None


def test_a_new_day_begins_with_what_is_still_reserved() -> None:
    meter = QuotaMeter(Quotas(user=Quota(qpu_seconds=10.0)))
    meter.note(ADA, 9.0, 10.0)
    meter.hold(task("one", seconds=4.0), 10.0)
    assert meter.next_day(10.0) == DAY
    assert meter.blocked(Caller("ada"), 7.0, DAY + 1) is not None
    assert meter.blocked(Caller("ada"), 6.0, DAY + 1) is None


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 200.0)), max_size=30))
def test_in_the_end_what_counts_is_what_was_used(pairs: list[tuple[float, float]]) -> None:
    meter = QuotaMeter(Quotas(user=Quota(qpu_seconds=1e9)))
    tasks = [task(str(n), seconds=seconds) for n, (seconds, _) in enumerate(pairs)]
    for each in tasks:
        meter.hold(each, 0.0)
    for each, (_, used) in zip(tasks, pairs, strict=True):
        each.used = used
        meter.charge(each, 0.0)
    total = sum(used for _, used in pairs)
    assert meter.left(Caller("ada"), 0.0)[0].seconds == pytest.approx(total, abs=1e-6)
