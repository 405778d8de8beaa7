"""Numbers as people read them, the same in tables, pictures and pages."""

from __future__ import annotations

from collections.abc import Sequence


def decimals(values: Sequence[float]) -> int:
    """The decimals that a column needs, so that short runs differ too, and long ones fit."""
    largest = max(values, default=0.0)
    return 0 if largest >= 10_000 else 1 if largest >= 10 else 3


def grouped(value: float, digits: int = 1) -> str:
    """1057.84 as 1,057.8."""
    return f"{value:,.{digits}f}"


def brief(value: float) -> str:
    """A single number, with the decimals it needs."""
    return grouped(value, 0 if value == 0 else decimals([value]))


def percent(value: float) -> str:
    """0.4512 as 45.1%."""
    return f"{value:.1%}"


def times(value: float) -> str:
    """0.85 as 0.85×."""
    return f"{value:.2f}×"
