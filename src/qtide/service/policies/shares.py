"""Shares: what everybody has used of the devices of late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from qtide.service.task import Caller

HALF_LIFE = 86_400.0
"""Seconds after which what was used counts half."""


class Owner(NamedTuple):
    """A user in the name of an account."""

    account: str
    user: str

    @staticmethod
    def of(caller: Caller) -> Owner:
        """The owner of what a caller hands in; a user without an account stands alone."""
        return Owner(caller.account or caller.user, caller.user)


class Shares:
    """What each owner has used of the devices, decayed; one record for all devices."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, half_life: float = HALF_LIFE
    ) -> None:
        self._weights = dict(weights or {})
        self._half_life = half_life
        self._used: dict[str | Owner, tuple[float, float]] = {}
        self.served: dict[Owner, float] = {}
        """When each was served last."""

    def charge(self, owner: Owner, seconds: float, now: float) -> None:
        """Count seconds of a device; negative ones give back what was counted too much."""
        for each in (owner.account, owner):
            self._used[each] = (max(0.0, self.used(each, now) + seconds), now)

    def serve(self, owner: Owner, seconds: float, now: float) -> None:
        """Count what somebody gets now."""
        self.charge(owner, seconds, now)
        self.served[owner] = now

    def used(self, subject: str | Owner, now: float) -> float:
        """The decayed seconds of an account, or of one of its users."""
        seconds, at = self._used.get(subject, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life))

    def weight(self, account: str) -> float:
        """The share an account is entitled to, relative to the others' 1."""
        return self._weights.get(account, 1.0)
