"""When nothing is started: pure functions of time, and maintenance of a whole service."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.backends.payloads.payload import Burst, encode
from qtide.core.errors import UsageError
from qtide.core.world.virtual import VirtualWorld
from qtide.service.configuration import CalibrationPlan, MaintenanceWindow
from qtide.service.device.calendar import LONGEST_REST, Calendar, DeviceState
from qtide.service.intake import Submission
from qtide.service.task import Caller, CannotPromise, Forbidden, NotFound
from tests.service.happenings import LONGEST, Step, delays, play, submissions
from tests.service.simulation import OPERATOR, Site

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


@pytest.mark.usefixtures("no_background_task_failed")
def test_no_task_starts_during_planned_maintenance_and_everybody_knows() -> None:
    site = Site(VirtualWorld(), {"promised": 0.9})

    async def main() -> None:
        await site.open()
        world, ada = site.world, Caller("ada")
        await world.sleep(10.0)
        now = world.now()
        window, broken = await site.service.operations.plan_maintenance(
            OPERATOR, "dev", now + 20.0, now + 100.0, "cooling"
        )
        assert broken == 0
        for _ in range(3):  # the last one does not fit before the maintenance
            world.start(site.submit(ada, 15.0))
            await world.sleep(0.1)
        last = site.service.standing((await site.tasks())[0])
        assert last is not None and last.start == pytest.approx(now + 100.0 + 10.0, abs=1.0)
        with pytest.raises(CannotPromise):  # nothing can start in the middle of it
            await site.service.submit(ada, Submission("dev", encode(Burst(1.0, 0)), max_wait=60.0))
        await site.kill()  # it is remembered
        dev = site.service.devices["dev"]
        assert [each.number for each in dev.maintenance] == [window.number]
        await world.sleep(now + 50.0 - world.now())
        assert (dev.state, dev.reason, dev.back) == ("maintenance", "cooling", now + 100.0)
        assert dev.why_waiting() == "maintenance"
        await site.service.operations.cancel_maintenance(OPERATOR, window.number)  # it was shorter
        assert dev.why_waiting() == "queue"
        with pytest.raises(NotFound, match="no planned maintenance"):
            await site.service.operations.cancel_maintenance(OPERATOR, window.number)
        with pytest.raises(Forbidden):
            await site.service.operations.plan_maintenance(ada, "dev", now, now + 1e6)
        with pytest.raises(UsageError, match="in the future"):
            await site.service.operations.plan_maintenance(OPERATOR, "dev", now - 9.0, now - 1.0)
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()


@pytest.mark.usefixtures("no_background_task_failed")
def test_promises_that_maintenance_breaks_are_counted() -> None:
    site = Site(VirtualWorld(), {"promised": 0.9})

    async def main() -> None:
        await site.open()
        await site.world.sleep(10.0)
        now = site.world.now()
        for _ in range(2):
            site.world.start(site.submit(Caller("ada"), 30.0, max_wait=60.0))
            await site.world.sleep(0.1)
        _, broken = await site.service.operations.plan_maintenance(
            OPERATOR, "dev", now + 40.0, now + 90.0
        )
        assert broken == 1  # the other one runs already
        await site.settle()

    site.world.run(main(), until=LONGEST)
    site.check()


def plans(after: float, lasts: float) -> Step:
    async def plan(site: Site) -> None:
        start = site.world.now() + after
        await site.service.operations.plan_maintenance(OPERATOR, "dev", start, start + lasts)

    return plan


@pytest.mark.usefixtures("no_background_task_failed")
@settings(max_examples=100)
@given(
    st.integers(0, 2**32),
    st.sampled_from((None, {"every": 50.0, "lasts": 10.0})),
    st.lists(
        st.tuples(
            delays,
            submissions
            | st.builds(plans, st.sampled_from((1.0, 20.0)), st.sampled_from((5.0, 60.0)))
            | st.just(Site.restart),
        ),
        max_size=30,
    ),
)
def test_no_task_ever_starts_during_maintenance(
    seed: int, calibration: Any, steps: list[tuple[float, Step]]
) -> None:
    site = play(Site(VirtualWorld(seed), {"calibration": calibration}, seed=seed), steps)
    windows = site.rows("SELECT * FROM maintenance")
    for task in site.rows():
        assert task["state"] == "done"
        for each in windows:  # a task may have been handed over just before
            assert not each["start"] + 1.0 < task["started"] < each["stop"] - 1e-5
