"""The limits of a service: the settings in `[limits]`, and what enforces them.

A `LeakyBucket` limits what a caller takes per second, a `FairSemaphore` what it holds at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
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


MOST_KNOWN = 10_000
"""Callers whose buckets are remembered; then empty ones are forgotten."""
LONGEST_DELAY = 10.0
"""Seconds that a caller is made to wait at most; beyond that, its request is refused."""
ALONE = 1.0
"""Seconds without a request of anybody else after which a caller is alone."""
SLICE = 20
"""Items of a list that are worked on before others have their turn."""
REST = 2.0
"""How long work on a list rests after a slice, in multiples of the time that the slice took."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class LeakyBucket:
    """What each caller takes fills its bucket, which leaks at `rate` per second and holds `burst`.

    Whoever overfills it waits (`wait`) or is refused (`check`) until enough has leaked.
    """

    def __init__(self, world: World, rate: float, burst: float) -> None:
        self._world = world
        self._rate = rate
        self._burst = burst
        self._empty_at: dict[str, float] = {}
        """When each caller's bucket will be empty."""

    def adopt(self, rate: float, burst: float) -> None:
        """Leak and hold other amounts from now on; the levels stay."""
        self._rate = rate
        self._burst = burst

    def charge(self, who: str, amount: float) -> None:
        """Count what a caller takes."""
        now = self._world.now()
        if len(self._empty_at) > MOST_KNOWN:
            self._empty_at = {each: at for each, at in self._empty_at.items() if at > now}
        self._empty_at[who] = max(self._empty_at.get(who, 0.0), now) + amount / self._rate

    def delay(self, who: str) -> float:
        """Seconds until a caller's bucket is no longer overfull."""
        empty_at = self._empty_at.get(who)
        if empty_at is None:
            return 0.0
        return max(0.0, empty_at - self._world.now() - self._burst / self._rate)

    async def wait(self, who: str) -> None:
        """Wait until a caller may take more; refuse it if that takes too long."""
        delay = self.delay(who)
        if delay > LONGEST_DELAY:
            raise OverLimit(f"{who} sends or asks for too much; wait {delay:.0f} s", delay)
        if delay > 0:
            await self._world.sleep(delay)

    def check(self, who: str, what: str) -> None:
        """Refuse a caller whose bucket is overfull."""
        if delay := self.delay(who):
            delay += 1.0
            raise OverLimit(
                f"{who} has used {self._burst:g} {what}, as much as allowed; "
                f"send it again in {delay:.0f} s",
                delay,
            )


class FairSemaphore:
    """Places for all callers together, of which each may hold only some.

    A caller that finds none free is refused (`take`) or waits (`turn`). Those that wait are served
    in turn, however many requests each of them has.
    """

    def __init__(
        self,
        world: World,
        noun: str,
        each: int,
        total: int | None = None,
        waiting: int = 10_000,
    ) -> None:
        self._world = world
        self._noun = noun
        self._each = each
        self._total = total
        self._most_waiting = waiting
        self._taken = 0
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[Future[None]]] = {}

    def adopt(self, each: int, total: int | None = None) -> None:
        """Offer other numbers of places from now on; what is taken stays taken."""
        self._each = each
        self._total = total

    @property
    def taken(self) -> int:
        """The places that all callers hold together."""
        return self._taken

    def take(self, who: str, amount: int = 1) -> None:
        """Take places at once, or refuse."""
        if self._held[who] + amount > self._each:
            raise OverLimit(
                f"{who} may have {self._each} {self._noun} at once; wait until some have ended"
            )
        if self._total is not None and self._taken + amount > self._total:
            raise Overloaded(f"the service has as many {self._noun} as it can hold; try again soon")
        self._held[who] += amount
        self._taken += amount

    def give_back(self, who: str, amount: int = 1) -> None:
        """Give places back; those that wait get them in turn."""
        self._taken -= amount
        self._held[who] -= amount
        if self._held[who] <= 0:
            del self._held[who]
        while self._total is None or self._taken < self._total:
            following = next((one for one in self._waiting if self._held[one] < self._each), None)
            if following is None:
                return
            queue = self._waiting.pop(following)
            future = queue.popleft()
            if queue:
                self._waiting[following] = queue  # behind all others
            if not future.done():
                self.take(following)
                release(future)

    @contextmanager
    def taking(self, who: str, amount: int = 1) -> Iterator[None]:
        """Take places for as long as the block runs, or refuse."""
        self.take(who, amount)
        try:
            yield
        finally:
            self.give_back(who, amount)

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it for as long as the block runs."""
        await self.wait(who)
        try:
            yield
        finally:
            self.give_back(who)

    async def wait(self, who: str) -> None:
        """Wait for a place."""
        full = self._total is not None and self._taken >= self._total
        if not full and self._held[who] < self._each:  # then nobody who may have it waits
            self.take(who)
            return
        queue = self._waiting.setdefault(who, deque())
        if len(queue) >= self._most_waiting:
            raise OverLimit(f"{who} has {len(queue)} requests that wait for their turn; wait")
        future: Future[None] = self._world.future()
        queue.append(future)
        try:
            await future
        except BaseException:
            if future in queue:
                queue.remove(future)
                if not queue:
                    self._waiting.pop(who, None)
            elif future.done() and not future.cancelled():  # it was granted meanwhile
                self.give_back(who)
            raise


class Contention:
    """Whether several callers ask at present.

    This is no limit of its own: it says when the limits apply that only protect others.
    """

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


async def in_slices(
    world: World, items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    """Work on a long list in slices, and rest after each for longer than it took."""
    results: list[Result] = []
    for first in range(0, len(items), SLICE):
        began = world.now()
        results += [work(each) for each in items[first : first + SLICE]]
        if first + SLICE < len(items):
            await world.sleep(REST * (world.now() - began))
    return results
