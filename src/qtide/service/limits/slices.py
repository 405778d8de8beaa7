"""Slices: long lists are worked through bit by bit, so that the event loop has time for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from qtide.service.limits.turns import Turns
from qtide.world import World

Item = TypeVar("Item")
Result = TypeVar("Result")

SLICE = 20
"""Items that are worked on before others have their turn."""
REST = 2.0
"""How long a list rests after each slice, in multiples of the time that the slice took."""
LISTS = 4
"""Lists that are worked on at once, one of each user."""


class Slices:
    """One list of a user at a time, which rests for longer than it works."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turns = Turns(world, LISTS, 1)

    def turn(self, who: str) -> AbstractAsyncContextManager[None]:
        """While a list of that user is looked up and worked on."""
        return self._turns.turn(who)

    async def of(self, items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
        """What the work makes of each item."""
        results: list[Result] = []
        for first in range(0, len(items), SLICE):
            began = self._world.now()
            results += [work(each) for each in items[first : first + SLICE]]
            if first + SLICE < len(items):
                await self._world.sleep(REST * (self._world.now() - began))
        return results
