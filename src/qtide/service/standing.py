"""Where a task stands that is not over: why it waits, and what is expected of it."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.forecasts.outlook import Outlook


@dataclass(frozen=True)
class Standing:
    """`reason` is None for a task on the device; without an outlook, nobody knows when."""

    reason: str | None
    outlook: Outlook | None = None
    not_before: float | None = None
    """Of a task that a quota holds back: when that may let it go on."""

    @property
    def start(self) -> float | None:
        """When it is expected to start."""
        return self.outlook.start if self.outlook else self.not_before

    @property
    def end(self) -> float | None:
        """When it is expected to end."""
        return self.outlook.end if self.outlook else self.not_before

    @property
    def position(self) -> int | None:
        """How many tasks are before it."""
        return self.outlook.position if self.outlook else None
