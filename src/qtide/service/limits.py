"""The limits of a service, as its configuration sets them in `[limits]`."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from qtide.core.errors import QtideError
from qtide.core.world.world import Future, World, release

Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=1024)]
Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]

MB = 2**20


class Limits(BaseModel):
    """A peer is a user of this host, or the address of another one; a user has a token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: Count = 4096
    """Open at once, of all peers; never more than the process may open files."""
    connections_per_peer: Count = 512
    header_bytes: Bytes = 32 * 1024
    header_seconds: Time = 10.0
    """Within which the head of a request has to arrive."""
    body_seconds: Time = 60.0
    """Within which the rest of a request has to arrive."""
    stalled_seconds: Time = 15.0
    """Without any progress of a sender or a reader."""
    requests_per_user: Count = 1000
    """Being answered at once, including those that wait for a task's end."""
    requests_per_second_per_user: Count = 200
    """While others ask as well; whoever asks more often is slowed down."""
    bytes_in_flight: Bytes = 96 * MB
    """Of requests and answers of all users, held in memory at once."""
    bytes_in_flight_per_user: Bytes = 40 * MB
    bytes_per_second_per_user: Bytes = 16 * MB
    """Of requests and answers, after the first so many; whoever is faster is slowed down."""
    refusals_per_second: Count = 100
    """Answers to requests of one peer without a valid token; more of them wait."""
    validators: Count = 2
    """Processes per device that check payloads; no user occupies all of them."""
    validation_seconds: Time = 30.0
    """Per user and minute, of checking payloads."""
    stored_bytes_per_user: Bytes = 1024 * MB
    """Payloads and answers of a user on disk; no user gets more than a quarter of what is free."""
    stored_bytes_per_second_per_user: Bytes = 4 * MB
    """After the first 16 MB; whoever stores faster is slowed down, so that others are not."""
    disk_reserve: Annotated[int, Field(ge=0)] = 64 * MB
    """Free space that new tasks do not use: it is for the answers of accepted ones."""
    admissions_per_user: Count = 256
    """Requests of a user's jobs for a token that wait at once."""
    tokens_per_job: Count = 8
    """Valid at once; a job that asks again gets the token that it has."""


class OverLimit(QtideError):  # noqa: N818 - what happened
    """The caller takes as much as it may; after a while it may take more (HTTP 429)."""

    def __init__(self, sentence: str, retry_after: float = 1.0) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Overloaded(QtideError):  # noqa: N818 - what happened
    """All callers together take as much as the service has (HTTP 503)."""


class TooLarge(QtideError):  # noqa: N818 - what happened
    """A request has more bytes than any may have (HTTP 413)."""


class StorageFull(QtideError):  # noqa: N818 - what happened
    """A user has stored as much as allowed, or the disk is nearly full (HTTP 507)."""


class WrongSite(QtideError):  # noqa: N818 - what happened
    """A web page of another site sent the request (HTTP 403)."""


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


LONGEST = 10.0
"""Seconds that anybody is made to wait; beyond, a request is refused."""
ALONE = 1.0
"""Seconds after which somebody who asks no more is no company."""
"""Callers that are remembered; the debts of others have long been paid."""


class Contention:
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
