"""A race: contenders for one device, of whom the one that has had least for its share is next.

This is fair queueing by virtual time. Each contender has a claim: the seconds it had, divided by
its share. Whoever comes back starts at least from the lowest claim of those that wait, less a
limited head start: nobody saves up time by staying away. Claims do not change while contenders
wait, so the order is kept, not computed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeVar

AGEING = 0.1
"""QPU seconds that a second of waiting since last being served makes up for."""
FORGET_AT = 10_000
"""Contenders remembered beyond those that wait; then those are forgotten who lose nothing by it."""

Rank = tuple[float, float, str]
One = TypeVar("One", bound="Contender")


class Contender:
    """Someone who may be served, with a share of `weight`."""

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self.weight = weight
        self.claim = float("-inf")
        self.since = 0.0
        """Since when it has waited, or was last served."""
        self.waits = False

    @property
    def rank(self) -> Rank:
        """The lowest is next."""
        return self.claim + AGEING * self.since, self.since, self.name


class Race:
    """The contenders that wait, in order."""

    def __init__(self) -> None:
        self.floor = 0.0
        """The lowest claim of those that waited when someone was served; it never falls."""
        self._ranks: list[Rank] = []
        self._claims: list[tuple[float, str]] = []

    def __bool__(self) -> bool:
        return bool(self._ranks)

    @property
    def first(self) -> str:
        """The name of the next one."""
        return self._ranks[0][-1]

    def enter(self, one: Contender, credit: float, now: float) -> None:
        """Someone has something to do again."""
        one.claim = max(one.claim, self.floor - credit)
        one.since, one.waits = now, True
        self._put_in(one)

    def leave(self, one: Contender) -> None:
        """Someone has nothing more to do."""
        self._take_out(one)
        one.waits = False

    def serve(self, one: Contender, seconds: float, now: float) -> None:
        """Someone is served for so many seconds, as expected."""
        self.floor = max(self.floor, self._claims[0][0])
        self._take_out(one)
        one.claim += seconds / one.weight
        one.since = now
        self._put_in(one)

    def charge(self, one: Contender, seconds: float) -> None:
        """It took so many seconds more, or fewer, than expected."""
        if one.waits:
            self._take_out(one)
        one.claim += seconds / one.weight
        if one.waits:
            self._put_in(one)

    def _put_in(self, one: Contender) -> None:
        insort(self._ranks, one.rank)
        insort(self._claims, (one.claim, one.name))

    def _take_out(self, one: Contender) -> None:
        del self._ranks[bisect_left(self._ranks, one.rank)]
        del self._claims[bisect_left(self._claims, (one.claim, one.name))]


def forget(contenders: dict[str, One], below: float) -> dict[str, One]:
    """The contenders to remember: others would start from the same claim again."""
    if len(contenders) < FORGET_AT:
        return contenders
    return {name: one for name, one in contenders.items() if one.waits or one.claim > below}
