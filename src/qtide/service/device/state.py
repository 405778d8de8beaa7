"""The state of a device: whether tasks are started on it, and if not, why."""

from __future__ import annotations

from qtide.service.device.calendar import Calendar

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
