"""Slices: long lists are worked through bit by bit, so that the event loop has time for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from qtide.service.limits.turns import Turns
from qtide.world import World

Item = TypeVar("Item")
Result = TypeVar("Result")

SLICE = 20
"""Items that are worked on before others have their turn."""
LISTS = 4
"""Lists that are worked on at once, one of each user."""


class Slices:
    """One list of a user at a time, which rests for as long as it works."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turns = Turns(world, LISTS, 1)

    async def of(
        self, items: Sequence[Item], work: Callable[[Item], Result], who: str
    ) -> list[Result]:
        """What the work makes of each item."""
        if len(items) < SLICE:
            return [work(each) for each in items]
        results: list[Result] = []
        async with self._turns.turn(who):
            for first in range(0, len(items), SLICE):
                began = self._world.now()
                results += [work(each) for each in items[first : first + SLICE]]
                await self._world.sleep(self._world.now() - began)
        return results
