"""A signal that many can wait for, and that nobody misses who looked at the clock before."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Signal:
    """Counts how often it was fired."""

    def __init__(self) -> None:
        self._fired = 0
        self._next = asyncio.Event()

    def moment(self) -> int:
        """To be handed to `after`."""
        return self._fired

    def fire(self) -> None:
        """Wake all that wait."""
        self._fired += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, moment: int, limit: float) -> None:
        """Wait until it is fired after that moment, but no longer than `limit` seconds."""
        if self._fired == moment:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), limit)
