"""A signal that many can wait for; it is not missed between a look and the wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Signal:
    """Counts how often it was fired."""

    def __init__(self) -> None:
        self._fired = 0
        self._next = asyncio.Event()

    def moment(self) -> int:
        """The present moment, to be passed to `after`."""
        return self._fired

    def fire(self) -> None:
        """Wake all waiters."""
        self._fired += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, moment: int, limit: float) -> None:
        """Wait until it has fired after that moment, but no longer than `limit` seconds."""
        if self._fired == moment:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), limit)
