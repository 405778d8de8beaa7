"""When a device takes no task: planned calibrations, and pauses after its own faults."""

from __future__ import annotations

from qtide.service.configuration import CalibrationPlan

INSTANT = 1e-6
LONGEST_REST = 30.0
"""The longest pause of a device after faults, in seconds; it starts at one, and doubles."""


class Calendar:
    """Known for any moment; only faults change it."""

    def __init__(self, plan: CalibrationPlan | None, since: float) -> None:
        self._plan = plan
        self._since = since
        """When a period began: each ends with a calibration."""
        if plan is not None and plan.first is not None:
            self._since += plan.first + plan.lasts - plan.every
        self._faults = 0
        self._rests_until = 0.0

    def fault(self, now: float) -> float:
        """The device failed: return how long it pauses now, longer each time."""
        self._faults += 1
        rest = min(2.0 ** (self._faults - 1), LONGEST_REST)
        self._rests_until = now + rest
        return rest

    def sound(self) -> None:
        """The device worked: earlier faults no longer count."""
        self._faults = 0

    def resting(self, at: float) -> bool:
        """Whether it pauses after a fault."""
        return at < self._rests_until

    def calibration(self, at: float) -> float:
        """How long a calibration still lasts at a moment; the first one ends the first period."""
        if self._plan is None:
            return 0.0
        left = self._plan.every - (at - self._since) % self._plan.every
        return left if left <= self._plan.lasts else 0.0

    def pause(self, at: float) -> float:
        """How long, from a moment on, nothing is started."""
        return max(0.0, self._rests_until - at, self.calibration(at))

    def open_time(self, at: float) -> float:
        """The seconds outside of calibrations up to a moment: time as tasks can use it."""
        if self._plan is None:
            return at
        periods, into = divmod(at - self._since, self._plan.every)
        each = self._plan.every - self._plan.lasts
        return periods * each + min(into, each)

    def moment(self, open_time: float) -> float:
        """When so much open time has passed, and tasks may start."""
        if self._plan is None:
            return open_time
        periods, into = divmod(open_time, self._plan.every - self._plan.lasts)
        return self._since + periods * self._plan.every + into

    def last_start(self, latest: float) -> float:
        """The latest open time at which a task may start if it has to by `latest`."""
        calibrating = self.calibration(latest) > 0.0
        return self.open_time(latest) - (INSTANT if calibrating else 0.0)


STATES = ("starting", "idle", "busy", "error", "maintenance", "calibration")


class DeviceState:
    """The state, as worker, calendar and operators determine it."""

    def __init__(self, calendar: Calendar) -> None:
        self.calendar = calendar
        self.present = False
        """Whether there is a worker."""
        self.trouble: str | None = None
        """Why there is no worker, or why the device pauses."""
        self.drained: str | None = None
        """Why no new task is started, if an operator has drained the device."""
        self.closing = False
        self.retiring = False
        """Whether the device ends with its present tasks, as it is replaced or removed."""

    def name(self, now: float, *, busy: bool) -> str:
        """One of STATES."""
        if self._down(now):
            return "error" if self.trouble else "starting"
        if busy:
            return "busy"
        if self.drained is not None:
            return "maintenance"
        return "calibration" if self.calendar.calibration(now) else "idle"

    def why_waiting(self, now: float) -> str:
        """The reason that a task of the device's queue waits."""
        if self.drained is not None:
            return "maintenance"
        if self._down(now):
            return "down" if self.trouble else "starting"
        return "calibration" if self.calendar.calibration(now) else "queue"

    @property
    def held_back(self) -> bool:
        """Whether nothing is started until an operator resumes the device."""
        return self.closing or self.retiring or self.drained is not None

    def open(self, now: float) -> bool:
        """Whether tasks may be started."""
        return self.present and not self.held_back and self.calendar.pause(now) == 0

    def _down(self, now: float) -> bool:
        return not self.present or self.calendar.resting(now)
