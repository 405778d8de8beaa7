"""Exports of usage: lines that other accounting systems read, with sums that add up."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.core.errors import UsageError
from qtide.interfaces.cli.usage import _between, waldur_lines, xdmod_lines

names = st.sampled_from(["ada", "bob", "(site)"])
charged = st.lists(st.tuples(names, st.floats(0.0, 90_000.0), st.floats(0.0, 100.0)), max_size=30)


def charge(number: int, user: str, seconds: float, waited: float) -> dict[str, Any]:
    ended = 1_800_000_000.5 + number
    return {
        "task": str(number),
        "number": number,
        "name": "a | name\nof two lines",
        "state": "done",
        "user": user,
        "account": "physics",
        "job": 7,
        "device": "star",
        "submitted": ended - seconds - waited,
        "began": ended - seconds,
        "ended": ended,
        "qpu_seconds": seconds,
    }


def seconds_of(elapsed: str) -> int:
    days, _, rest = elapsed.rpartition("-")
    hours, minutes, seconds = map(int, rest.split(":"))
    return int(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


@given(charged)
def test_xdmod_gets_26_fields_whose_whole_seconds_add_up(
    rows: list[tuple[str, float, float]],
) -> None:
    found = [charge(number, *row) for number, row in enumerate(rows, 1)]
    lines = [line.split("|") for line in xdmod_lines(iter(found))]
    assert all(len(line) == 26 for line in lines)
    total = sum(seconds_of(line[14]) for line in lines)
    assert abs(total - sum(row["qpu_seconds"] for row in found)) <= 0.5 + 1e-6
    for line in lines:
        submit, eligible, start, end = (datetime.fromisoformat(each) for each in line[10:14])
        assert submit <= start <= end and eligible <= start
        assert (end - start).total_seconds() == seconds_of(line[14])
        assert ("_" in line[0]) == (line[8] == "(site)")


@given(charged)
def test_waldur_gets_milliseconds_that_add_up(rows: list[tuple[str, float, float]]) -> None:
    found = [{"account": "physics", "user": user, "qpu_seconds": used} for user, used, _ in rows]
    parts = [line.split("|") for line in waldur_lines(found)]
    assert all(len(each) == 4 and each[2] == "00:01:00" for each in parts)
    total = sum(int(each[1].removeprefix("qpu=")) for each in parts)
    assert abs(total - 1000 * sum(used for _, used, _ in rows)) <= 0.5 + 1e-3


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        ("2026", "2026-01-01", "2027-01-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2028-02-28", "2028-02-28", "2028-02-29"),
    ],
)
def test_a_period_is_a_day_a_month_or_a_year(period: str, begin: str, end: str) -> None:
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (begin, end)]
    assert _between(None, None, period) == tuple(each.timestamp() for each in moments)


def test_no_other_period_is_taken() -> None:
    with pytest.raises(UsageError, match="2026-03 or 2026-03-01, not '2026-3-1'"):
        _between(None, None, "2026-3-1")
    with pytest.raises(UsageError, match="without --since"):
        _between("7d", None, "2026")
    assert _between("1d", None, None)[0] == pytest.approx(time.time() - 86_400.0, abs=60.0)
