"""What is learnt from waits that took longer than expected."""

import pytest

from qtide.core.forecasts import SEEN, Slips


def test_nothing_is_corrected_before_anything_was_seen() -> None:
    assert Slips().corrected("me", 10.0) == 10.0


def test_a_newcomer_learns_from_everybody_and_others_from_themselves() -> None:
    slips = Slips()
    slips.add("old", 10.0, 10.0)
    slips.add("young", 10.0, 50.0)
    assert slips.corrected("old", 10.0) == 10.0
    assert slips.corrected("young", 10.0) == 50.0
    assert slips.corrected("new", 10.0) == pytest.approx(30.0)


def test_a_wait_is_never_expected_to_be_shorter_than_the_queue() -> None:
    slips = Slips()
    slips.add("me", 10.0, 5.0)
    slips.add("me", 0.0, 0.0)
    assert slips.corrected("me", 10.0) == 10.0


def test_what_is_long_past_does_not_count() -> None:
    slips = Slips()
    slips.add("me", 1.0, 100.0)
    for _ in range(SEEN):
        slips.add("me", 1.0, 2.0)
    assert slips.corrected("me", 1.0) == pytest.approx(2.0)
