"""Tables fit the terminal: nothing is dropped, and what is shortened is marked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.interfaces.cli.console import print_rows, shortened

LONG = "the cryostat is being warmed up for the yearly maintenance of its pumps, until Friday"
TASK = {
    "task": "45b7c505",
    "device": "superconducting-star-emulator",
    "user": "somebody-with-a-long-name@campus",
    "account": "an-account-with-a-long-name",
    "job": 1234567,
    "state": "queued",
    "place": 12,
    "why": LONG,
    "start": "13:57:37",
    "end": "13:57:57",
    "qpu s": "20",
}


def lines(capsys: pytest.CaptureFixture[str], rows: list[dict[str, Any]]) -> list[str]:
    print_rows(rows, ["why"])
    return capsys.readouterr().out.splitlines()


def test_a_table_that_is_too_wide_drops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    head, _, row, *why = lines(capsys, [TASK])
    assert head.split() == [*(word for word in " ".join(TASK).split() if word != "why")]
    assert max(len(head), len(row)) <= 80
    assert " ".join(" ".join(why).split()) == f"why: {LONG}"
    for whole in ("45b7c505", "1234567", "13:57:37", "13:57:57"):
        assert whole in row
    for name in ("device", "user", "account"):
        assert str(TASK[name]) not in row
    assert row.count("…") == 3


def test_what_fits_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"device": "dev", "why": None, "state": "idle"},
        {"device": "a", "why": "b", "state": None},
    ]
    assert [line.rstrip() for line in lines(capsys, rows)] == [
        "device  why  state",
        "──────────────────",
        "dev     –    idle",
        "a       b    –",
    ]


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40), st.integers(3, 30))
def test_a_name_keeps_both_ends(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) == min(len(text), width)
    head, mark, tail = short.partition("…")
    assert text.startswith(head) and (not mark or text.endswith(tail))
