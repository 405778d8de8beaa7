"""The margin of a promise: how much later than planned things happen, as measured.

Each figure is the highest seen, which fades as better ones follow; twice of it is allowed for.
"""

from __future__ import annotations

SAFETY = 2.0
FADING = 0.995


class Peak:
    """The highest value of late."""

    def __init__(self, first: float) -> None:
        self.value = first
        self._least = first

    def note(self, value: float) -> None:
        """One more was measured."""
        self.value = max(value, self._least, FADING * self.value)


class Margin:
    """The delays of one device and of the store."""

    def __init__(self) -> None:
        self.commit = Peak(0.005)
        """Until a task is accepted."""
        self.start = Peak(0.005)
        """From the planned to the real start of a task."""
        self.task = Peak(0.0005)
        """What a task takes beyond its own time."""

    @property
    def until_ready(self) -> float:
        """Seconds until a task that comes now can be handed over."""
        return SAFETY * self.commit.value

    @property
    def until_begun(self) -> float:
        """Seconds by which a start may be late."""
        return SAFETY * self.start.value

    @property
    def per_task(self) -> float:
        """Seconds to allow for each task."""
        return SAFETY * self.task.value
