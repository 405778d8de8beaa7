"""A budget: how much of a resource each caller holds now, limited for each and for all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from qtide.service.limits.pace import Pace
from qtide.service.limits.refusals import OverLimit, Overloaded


class Budget:
    """Amounts that are taken before the work and given back after it."""

    def __init__(self, noun: str, each: int, total: int | None = None) -> None:
        self._noun = noun
        self._each = each
        self._total = total
        self._taken: Counter[str] = Counter()
        self._all = 0

    def adopt(self, each: int, total: int | None = None) -> None:
        """Limit to other amounts from now on; what is taken stays."""
        self._each = each
        self._total = total

    def take(self, who: str, amount: int = 1) -> None:
        """Take an amount, or refuse it with a sentence."""
        if self._taken[who] + amount > self._each:
            raise OverLimit(
                f"{who} may have {self._each} {self._noun} at once; wait until some have ended"
            )
        if self._total is not None and self._all + amount > self._total:
            raise Overloaded(f"the service has as many {self._noun} as it can hold; try again soon")
        self._taken[who] += amount
        self._all += amount

    def give_back(self, who: str, amount: int = 1) -> None:
        """Give back what was taken."""
        self._all -= amount
        self._taken[who] -= amount
        if self._taken[who] <= 0:
            del self._taken[who]

    @contextmanager
    def taking(self, who: str, amount: int = 1) -> Iterator[None]:
        """Take an amount for as long as the block runs."""
        self.take(who, amount)
        try:
            yield
        finally:
            self.give_back(who, amount)

    @property
    def taken(self) -> int:
        """What all callers hold together."""
        return self._all


class Load:
    """The part of a budget that one request takes: it grows, and ends with the request."""

    def __init__(self, budget: Budget, who: str, pace: Pace) -> None:
        self._budget = budget
        self._who = who
        self._pace = pace
        self._amount = 0

    def add(self, amount: int) -> None:
        """Take more, or refuse it."""
        self._pace.charge(self._who, amount)
        self._budget.take(self._who, amount)
        self._amount += amount

    async def keep_pace(self) -> None:
        """Wait if its sender is too fast."""
        await self._pace.wait(self._who)

    def release(self) -> None:
        """Give all of it back; what was received is no longer held."""
        if self._amount:
            self._budget.give_back(self._who, self._amount)
            self._amount = 0
