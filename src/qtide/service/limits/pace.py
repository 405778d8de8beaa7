"""A pace: so much per second and caller. Whoever is faster waits, and is not refused for it."""

from __future__ import annotations

from qtide.service.limits.refusals import OverLimit
from qtide.world import World

LONGEST = 10.0
"""Seconds that anybody is made to wait; beyond, a request is refused."""
ALONE = 1.0
"""Seconds after which somebody who asks no more is no company."""
MOST_KNOWN = 10_000
"""Callers that are remembered; the debts of others have long been paid."""


class Company:
    """Whether a caller is alone: somebody else's last request was long ago."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last, self._last_at = "", -ALONE
        self._other_at = -ALONE
        """When somebody other than the last caller asked."""

    def joins(self, who: str) -> bool:
        """Note a request; whether others have asked lately."""
        now = self._world.now()
        if who != self._last:
            self._last, self._other_at = who, self._last_at
        self._last_at = now
        return now - self._other_at < ALONE


class Pace:
    """What a caller takes at once beyond its rate is a debt, which time pays."""

    def __init__(self, world: World, rate: float, burst: float) -> None:
        self._world = world
        self._rate = rate
        self._burst = burst
        self._paid: dict[str, float] = {}
        """When each caller's debt will be paid."""

    def adopt(self, rate: float, burst: float) -> None:
        """Another pace from now on; debts stay."""
        self._rate = rate
        self._burst = burst

    def charge(self, who: str, amount: float) -> None:
        """Count what a caller takes."""
        now = self._world.now()
        if len(self._paid) > MOST_KNOWN:
            self._paid = {each: at for each, at in self._paid.items() if at > now}
        self._paid[who] = max(self._paid.get(who, 0.0), now) + amount / self._rate

    def delay(self, who: str) -> float:
        """Seconds that a caller has to wait now."""
        owed = self._paid.get(who)
        return (
            0.0 if owed is None else max(0.0, owed - self._world.now() - self._burst / self._rate)
        )

    async def wait(self, who: str) -> None:
        """Wait until the caller may take more."""
        delay = self.delay(who)
        if delay > LONGEST:
            raise OverLimit(f"{who} sends or asks for too much at once; wait", delay)
        if delay > 0:
            await self._world.sleep(delay)
