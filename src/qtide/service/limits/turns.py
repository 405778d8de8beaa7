"""Turns: callers that wait for the same thing get it in turn, however often each of them asks."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qtide.service.limits.refusals import OverLimit
from qtide.world import Future, World
from qtide.world.signal import release


class Turns:
    """A number of places; each caller in turn gets one, and none gets more than its part."""

    def __init__(self, world: World, places: int, each: int, waiting: int = 10_000) -> None:
        self._world = world
        self._free = places
        self._each = each
        self._most_waiting = waiting
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """A place for as long as the block runs."""
        await self._take(who)
        try:
            yield
        finally:
            self._give_back(who)

    async def _take(self, who: str) -> None:
        if self._free and self._held[who] < self._each:  # then nobody else who may have it waits
            self._grant(who)
            return
        queue = self._waiting.setdefault(who, deque())
        if len(queue) >= self._most_waiting:
            raise OverLimit(f"{who} has {len(queue)} requests that wait for their turn; wait")
        future: Future[None] = self._world.future()
        queue.append(future)
        try:
            await future
        except BaseException:
            self._leave(who, future)
            raise

    def _leave(self, who: str, future: Future[None]) -> None:
        """Somebody no longer waits; a place that was granted meanwhile goes to the next."""
        queue = self._waiting.get(who, deque())
        if future in queue:
            queue.remove(future)
            if not queue:
                self._waiting.pop(who, None)
        elif future.done() and not future.cancelled():
            self._give_back(who)

    def _grant(self, who: str) -> None:
        self._free -= 1
        self._held[who] += 1

    def _give_back(self, who: str) -> None:
        self._free += 1
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]
        self._pass_on()

    def _pass_on(self) -> None:
        while self._free:
            who = next((one for one in self._waiting if self._held[one] < self._each), None)
            if who is None:
                return
            queue = self._waiting.pop(who)
            future = queue.popleft()
            if queue:
                self._waiting[who] = queue  # behind all others
            if not future.done():
                self._grant(who)
                release(future)


class LoopTurns:
    """Turns of the event loop: while several callers ask, one request begins per round of it.

    Otherwise, a caller with a hundred connections would get a hundred times as much of the loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._running = False

    async def turn(self, who: str) -> None:
        """Return when it is the caller's turn; at once if nobody else asks."""
        loop = asyncio.get_running_loop()
        if not self._running:
            self._running = True
            loop.call_soon(self._next, loop)
            return
        future = loop.create_future()
        self._waiting.setdefault(who, deque()).append(future)
        await future

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            who = next(iter(self._waiting))
            queue = self._waiting.pop(who)
            future = queue.popleft()
            if queue:
                self._waiting[who] = queue  # behind all others
            if not future.done():
                future.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._running = False
