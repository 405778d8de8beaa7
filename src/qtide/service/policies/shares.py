"""Shares: the recent usage of the devices by each owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from qtide.service.task import Caller

HALF_LIFE = 86_400.0
"""Seconds after which usage counts half."""


class Owner(NamedTuple):
    """A user on behalf of an account."""

    account: str
    user: str

    @staticmethod
    def of(caller: Caller) -> Owner:
        """The owner of what a caller submits; a user without an account is an account of one."""
        return Owner(caller.account or caller.user, caller.user)


class Shares:
    """The decayed usage of each owner, summed over all devices."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, half_life: float = HALF_LIFE
    ) -> None:
        self._weights = dict(weights or {})
        self._half_life = half_life
        self._used: dict[str | Owner, tuple[float, float]] = {}
        self.served: dict[Owner, float] = {}
        """When each owner was last served."""

    def charge(self, owner: Owner, seconds: float, now: float) -> None:
        """Add seconds of usage; a negative number takes back what was added in excess."""
        for each in (owner.account, owner):
            self._used[each] = (max(0.0, self.used(each, now) + seconds), now)

    def serve(self, owner: Owner, seconds: float, now: float) -> None:
        """Add the expected usage of a task that is handed over now."""
        self.charge(owner, seconds, now)
        self.served[owner] = now

    def used(self, subject: str | Owner, now: float) -> float:
        """The decayed seconds of an account, or of one of its users."""
        seconds, at = self._used.get(subject, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life))

    def weight(self, account: str) -> float:
        """The share of an account; the default is 1."""
        return self._weights.get(account, 1.0)
