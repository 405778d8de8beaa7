"""The mean of the last few values: what happened lately is what to expect next."""

from __future__ import annotations

from collections import deque


class Recent:
    """Remembers so many values."""

    def __init__(self, most: int) -> None:
        self._values: deque[float] = deque(maxlen=most)

    def add(self, value: float) -> None:
        """Take in one more; the oldest is forgotten."""
        self._values.append(value)

    def mean(self) -> float:
        """Their mean; 0 while nothing is known."""
        return sum(self._values) / len(self._values) if self._values else 0.0

    def values(self) -> list[float]:
        """All of them, the oldest first."""
        return list(self._values)

    def clear(self) -> None:
        """Forget all of them."""
        self._values.clear()
