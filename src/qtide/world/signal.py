"""A signal: lets others wait, for a limited time, until something has happened."""

from __future__ import annotations

from qtide.world.world import Future, World


class Signal:
    """Stays set until it is cleared."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiters: set[Future[None]] = set()
        self.is_set = False

    def set(self) -> None:
        """Set it, and let all waiters continue."""
        self.is_set = True
        for waiter in self._waiters:
            release(waiter)

    def clear(self) -> None:
        """Clear it: later callers of `wait` wait again."""
        self.is_set = False

    async def wait(self, limit: float | None = None) -> bool:
        """Whether it was set within so many seconds; without a limit, wait until it is."""
        if self.is_set:
            return True
        waiter: Future[None] = self._world.future()
        alarm = None
        if limit is not None:
            alarm = self._world.alarm(limit, lambda: release(waiter))
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()
        return self.is_set


def release(waiter: Future[None]) -> None:
    """Resolve a future, unless it is done already."""
    if not waiter.done():
        waiter.set_result(None)
