"""When a device starts no task, and the state that follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID, uuid5

from qtide.service.configuration import CalibrationPlan, MaintenanceWindow
from qtide.service.task import CalibrationSet

INSTANT = 1e-6


LONGEST_REST = 30.0
"""Maximum seconds that a device pauses after faults; pauses start at one and double."""


class Calendar:
    """When a device starts no task. Open time counts the seconds outside planned pauses."""

    def __init__(self, plan: CalibrationPlan | None, since: float) -> None:
        self._plan = plan
        self._start = since
        self._since = since
        """The start of a period; each period ends with a calibration."""
        if plan is not None and plan.first is not None:
            self._since += plan.first + plan.lasts - plan.every
        self._faults = 0
        self._rests_until = 0.0
        self.windows: tuple[MaintenanceWindow, ...] = ()
        self._closed: list[tuple[float, float]] = []  # without overlaps, and without calibrations

    def plan(self, windows: Iterable[MaintenanceWindow]) -> None:
        """Set all planned maintenance."""
        self.windows = tuple(sorted(windows, key=lambda each: each.start))
        self._closed = []
        for each in self.windows:
            start, end = self._uncalibrated(each.start), self._uncalibrated(each.end)
            if self._closed and start <= self._closed[-1][1]:
                self._closed[-1] = self._closed[-1][0], max(end, self._closed[-1][1])
            else:
                self._closed.append((start, end))

    def fault(self, now: float) -> float:
        """Note a fault of the device; return how long it pauses, longer each time."""
        self._faults += 1
        rest = min(2.0 ** (self._faults - 1), LONGEST_REST)
        self._rests_until = now + rest
        return rest

    def sound(self) -> None:
        """Forget earlier faults, since the device worked."""
        self._faults = 0

    def resting(self, at: float) -> bool:
        """Whether the device pauses after a fault."""
        return at < self._rests_until

    def maintenance(self, at: float) -> MaintenanceWindow | None:
        """The window that a time is in; of several, the one that ends last."""
        inside = [each for each in self.windows if each.start <= at < each.end]
        return max(inside, key=lambda each: each.end, default=None)

    def calibration(self, at: float) -> float:
        """Seconds left of the calibration at a time, which ends each period; 0 if there is none."""
        if self._plan is None:
            return 0.0
        left = self._plan.every - (at - self._since) % self._plan.every
        return left if left <= self._plan.lasts else 0.0

    def calibrated(self, at: float) -> float | None:
        """When the last planned calibration before a time ended; None if there was none."""
        if self._plan is None:
            return None
        ended = self._since + (at - self._since) // self._plan.every * self._plan.every
        return ended if ended > self._start else None

    def described(self, at: float) -> dict[str, float] | None:
        """The end of the last planned calibration, the next begin, and how long it lasts."""
        if self._plan is None:
            return None
        last = at - (at - self._since) % self._plan.every
        next_one = last + self._plan.every - self._plan.lasts
        return {"last": last, "next": next_one, "lasts": self._plan.lasts}

    def pause(self, at: float) -> float:
        """Seconds from a time on for which nothing starts."""
        window = self.maintenance(at)
        planned = 0.0 if window is None else window.end - at
        return max(0.0, self._rests_until - at, self.calibration(at), planned)

    def open_time(self, at: float) -> float:
        """Convert a time to open time."""
        found = self._uncalibrated(at)
        return found - sum(min(found, end) - start for start, end in self._closed if start < found)

    def moment(self, open_time: float) -> float:
        """Convert an open time back to the time at which tasks may start."""
        for start, end in self._closed:
            if start <= open_time + INSTANT:  # which includes the earlier windows by now
                open_time += end - start
        if self._plan is None:
            return open_time
        periods, into = divmod(open_time, self._plan.every - self._plan.lasts)
        return self._since + periods * self._plan.every + into

    def last_start(self, latest: float) -> float:
        """The latest open time at which a task that has to start by `latest` may start."""
        closed = self.calibration(latest) > 0.0 or self.maintenance(latest) is not None
        return self.open_time(latest) - (INSTANT if closed else 0.0)

    def _uncalibrated(self, at: float) -> float:
        """The seconds outside calibrations until a time."""
        if self._plan is None:
            return at
        periods, into = divmod(at - self._since, self._plan.every)
        each = self._plan.every - self._plan.lasts
        return periods * each + min(into, each)


STATES = ("starting", "idle", "busy", "error", "maintenance", "calibration")


class DeviceState:
    """The state of a device, determined by its worker, its calendar and the operators."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.present = False
        """Whether there is a worker."""
        self.trouble: str | None = None
        """Why there is no worker, or why the device pauses."""
        self.drained: str | None = None
        """Why an operator has drained the device, so that no task starts; None if not drained."""
        self.stated: CalibrationSet | None = None
        """The calibration set of its properties, or the one that its last answer reported."""
        self.own_sets = False
        """Whether the device itself names its calibration sets, like a real one upstream."""
        self.closing = False
        self.retiring = False
        """Whether the device ends after its current tasks, because it is replaced or removed."""

    def name(self, now: float, *, busy: bool) -> str:
        """One of STATES."""
        if self._down(now):
            return "error" if self.trouble else "starting"
        if busy:
            return "busy"
        if self.drained is not None or self.calendar.maintenance(now):
            return "maintenance"
        return "calibration" if self.calendar.calibration(now) else "idle"

    def calibration(self, now: float) -> CalibrationSet | None:
        """The calibration set at a time; each planned calibration makes a new one."""
        planned = self.calendar.calibrated(now)
        if self.stated is None or self.own_sets or planned is None:
            return self.stated
        name = str(uuid5(UUID(self.stated.id), str(planned)))
        return CalibrationSet(name, planned, self.stated.metrics)

    def why_waiting(self, now: float) -> str:
        """Why a task in the device's queue waits."""
        if self.drained is not None or self.calendar.maintenance(now):
            return "maintenance"
        if self._down(now):
            return "down" if self.trouble else "starting"
        return "calibration" if self.calendar.calibration(now) else "queue"

    @property
    def held_back(self) -> bool:
        """Whether nothing starts: the device is drained, closing or retiring."""
        return self.closing or self.retiring or self.drained is not None

    def open(self, now: float) -> bool:
        """Whether tasks may start."""
        return self.present and not self.held_back and self.calendar.pause(now) == 0

    def _down(self, now: float) -> bool:
        return not self.present or self.calendar.resting(now)
