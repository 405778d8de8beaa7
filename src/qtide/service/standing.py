"""Where an unfinished task stands: why it waits, and when it should start and end."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.forecasts.outlook import Outlook

UNFORESEEABLE = ("down", "maintenance")
"""Reasons of which nobody knows how long they will last."""


@dataclass(frozen=True)
class Standing:
    """`reason` is None for a task on the device; without an outlook, the times are unknown."""

    reason: str | None
    outlook: Outlook | None = None
    not_before: float | None = None
    """For a task that a quota holds back: when the quota may release it."""

    @property
    def start(self) -> float | None:
        """When it is expected to start; None if nobody can know."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.start if self.outlook else self.not_before

    @property
    def end(self) -> float | None:
        """When it is expected to end; None if nobody can know."""
        if self.reason in UNFORESEEABLE:
            return None
        return self.outlook.end if self.outlook else self.not_before

    @property
    def position(self) -> int | None:
        """How many tasks are ahead of it."""
        return self.outlook.position if self.outlook else None
