"""When nothing is started: pure functions of time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.service.configuration import CalibrationPlan, MaintenanceWindow
from qtide.service.device.calendar import LONGEST_REST, Calendar, DeviceState

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


def window(start: float, end: float) -> MaintenanceWindow:
    return MaintenanceWindow(number=1, device="star", start=start, end=end, reason="cooling")


WINDOWS = st.lists(
    st.tuples(st.floats(0.0, 900.0), st.floats(0.5, 200.0)).map(
        lambda each: window(each[0], each[0] + each[1])
    ),
    max_size=4,
)


@given(WINDOWS, st.booleans(), st.floats(0.0, 1500.0))
def test_open_time_passes_only_while_tasks_may_start(
    windows: list[MaintenanceWindow], calibrates: bool, at: float
) -> None:
    calendar = Calendar(PLAN if calibrates else None, since=0.0)
    calendar.plan(windows)
    step = 0.25
    closed = calendar.pause(at) > 0.0
    passed = calendar.open_time(at + step) - calendar.open_time(at)
    assert -1e-6 <= passed <= step + 1e-6
    if closed and calendar.pause(at) > step:
        assert passed == pytest.approx(0.0, abs=1e-6)
    begins = calendar.moment(calendar.open_time(at))
    assert begins >= at - 1e-6
    assert calendar.open_time(begins) == pytest.approx(calendar.open_time(at), abs=1e-5)
    assert calendar.pause(begins + 2e-5) == 0.0 or calendar.pause(begins) == 0.0  # it may start


def test_windows_that_overlap_count_once() -> None:
    calendar = Calendar(None, since=0.0)
    calendar.plan([window(30.0, 50.0), window(10.0, 40.0), window(60.0, 70.0)])
    assert calendar.open_time(100.0) == 50.0
    assert [calendar.moment(each) for each in (9.0, 10.0, 19.0, 20.0)] == [9.0, 50.0, 59.0, 70.0]
    assert [calendar.pause(each) for each in (9.0, 10.0, 45.0, 55.0)] == [0.0, 30.0, 5.0, 0.0]
    calendar.plan([])
    assert calendar.open_time(100.0) == 100.0
