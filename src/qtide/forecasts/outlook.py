"""The outlook of whatever waits for a device."""

from __future__ import annotations

from typing import NamedTuple


class Outlook(NamedTuple):
    """How many are before it, and when it should start and end."""

    position: int
    start: float
    end: float
