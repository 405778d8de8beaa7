"""When nothing is started: pure functions of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.configuration import CalibrationPlan
from qtide.service.device.device_queue import LONGEST_REST, Calendar, DeviceState

PLAN = CalibrationPlan(every=100.0, lasts=10.0)


@given(st.floats(0.0, 1e6))
def test_a_calibration_ends_every_period(at: float) -> None:
    left = Calendar(PLAN, since=0.0).calibration(at)
    into = at % 100.0
    assert left == (100.0 - into if into >= 90.0 else 0.0)


def test_a_device_pauses_longer_after_each_fault_until_it_works_again() -> None:
    calendar = Calendar(None, since=0.0)
    rests = [calendar.fault(0.0) for _ in range(7)]
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_REST, LONGEST_REST]
    assert calendar.pause(10.0) == LONGEST_REST - 10.0
    assert not calendar.resting(LONGEST_REST)
    calendar.sound()
    assert calendar.fault(50.0) == 1.0


def test_the_state_of_a_device_and_why_its_tasks_wait() -> None:
    state = DeviceState(Calendar(PLAN, since=0.0))

    def seen(now: float, busy: bool = False) -> tuple[str, str, bool]:
        return state.name(now, busy=busy), state.why_waiting(now), state.open(now)

    assert seen(0.0) == ("starting", "starting", False)
    state.trouble = "no such package"
    assert seen(0.0) == ("error", "down", False)
    state.present, state.trouble = True, None
    assert seen(0.0) == ("idle", "queue", True)
    assert seen(0.0, busy=True) == ("busy", "queue", True)
    assert seen(95.0) == ("calibration", "calibration", False)
    state.drained = "cooling"
    assert seen(0.0) == ("maintenance", "maintenance", False)
    state.drained, state.trouble = None, "away"
    state.calendar.fault(0.0)
    assert seen(0.5) == ("error", "down", False)
    assert seen(1.0) == ("idle", "queue", True)


def test_the_first_calibration_may_begin_at_any_time_of_the_period() -> None:
    calendar = Calendar(CalibrationPlan(every=100, lasts=10, first=30), since=1000.0)
    moments = (1000.0, 1029.0, 1030.0, 1035.0, 1040.0, 1130.0)
    assert [calendar.calibration(at) for at in moments] == [0, 0, 10, 5, 0, 10]
    assert calendar.moment(calendar.open_time(1030.0) + 5.0) == 1045.0
    with pytest.raises(ValueError, match="end within the first period"):
        CalibrationPlan(every=100, lasts=10, first=95)
