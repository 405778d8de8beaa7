import pytest

from qtide.interfaces.report.table import brief, decimals, grouped, percent, times


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.500"), (9.9, "9.900"), (1057.84, "1,057.8"), (12345.6, "12,346")],
)
def test_brief(value: float, text: str) -> None:
    assert brief(value) == text


def test_a_column_of_short_times_has_more_digits() -> None:
    assert (decimals([0.2, 3]), decimals([0.2, 30]), decimals([0.0])) == (3, 1, 0)


def test_units() -> None:
    assert (grouped(1057.84), percent(0.4512), times(0.853)) == ("1,057.8", "45.1%", "0.85×")
