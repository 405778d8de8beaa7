"""An allowance: seconds of work per caller and minute, for work of a length unknown before."""

from __future__ import annotations

from collections.abc import Callable

from qtide.service.limits.refusals import OverLimit

PERIOD = 60.0
MOST_KNOWN = 10_000
"""Callers that are remembered; the balances of others have long recovered."""


class Allowance:
    """Each caller's seconds come back steadily; whoever has none left is refused until then."""

    def __init__(self, what: str, seconds: float, now: Callable[[], float]) -> None:
        self._what = what
        self._most = seconds
        self._now = now
        self._used: dict[str, tuple[float, float]] = {}
        """What each has used, and when that was true."""

    def adopt(self, seconds: float) -> None:
        """Allow so many seconds from now on."""
        self._most = seconds

    def check(self, who: str) -> None:
        """Refuse a caller that has used all of it."""
        used = self._balance(who)
        if used >= self._most:
            wait = (used - self._most) * PERIOD / self._most + 1.0
            raise OverLimit(
                f"{who} has used {self._most:g} s of {self._what} within a minute, as much as "
                f"allowed; send it again in {wait:.0f} s",
                wait,
            )

    def charge(self, who: str, seconds: float) -> None:
        """Count what a caller used."""
        if len(self._used) > MOST_KNOWN:
            self._forget()
        self._used[who] = (self._balance(who) + seconds, self._now())

    def _balance(self, who: str) -> float:
        used, at = self._used.get(who, (0.0, 0.0))
        return max(0.0, used - (self._now() - at) * self._most / PERIOD)

    def _forget(self) -> None:
        self._used = {who: entry for who, entry in self._used.items() if self._balance(who) > 0}
