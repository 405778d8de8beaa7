"""The limits of a service: the settings in `[limits]`, and the classes that enforce them.

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
    """Limits per peer (a user of this host, or a remote address) and per user (with a token)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: Count = 4096
    """Open connections of all peers; capped by the process's limit of open files."""
    connections_per_peer: Count = 512
    header_bytes: Bytes = 32 * 1024
    header_seconds: Time = 10.0
    """Seconds for the head of a request to arrive."""
    body_seconds: Time = 60.0
    """Seconds for the rest of a request to arrive."""
    stalled_seconds: Time = 15.0
    """Seconds that a sender or reader may make no progress."""
    requests_per_user: Count = 1000
    """Requests in progress at once, including those that wait for a task's end."""
    requests_per_second_per_user: Count = 200
    """Requests per second beyond which a user is slowed down while others send requests too."""
    bytes_in_flight: Bytes = 96 * MB
    """Bytes of all users' requests and answers in memory at once."""
    bytes_in_flight_per_user: Bytes = 40 * MB
    bytes_per_second_per_user: Bytes = 16 * MB
    """Bytes of requests and answers per second, after an equal burst; faster users are slowed."""
    refusals_per_second: Count = 100
    """Answers per second to one peer's requests without a valid token; further ones wait."""
    validators: Count = 2
    """Processes per device that check payloads; no user can occupy all of them."""
    validation_seconds: Time = 30.0
    """Seconds of payload checks per user and minute."""
    stored_bytes_per_user: Bytes = 1024 * MB
    """Bytes of a user's payloads and answers on disk; at most a quarter of the free space."""
    stored_bytes_per_second_per_user: Bytes = 4 * MB
    """Bytes per second after a burst of 16 MB; faster users are slowed, so that others are not."""
    disk_reserve: Annotated[int, Field(ge=0)] = 64 * MB
    """Free bytes that new tasks may not use, kept for the answers of accepted tasks."""
    admissions_per_user: Count = 256
    """Token requests of a user's jobs that may wait at once."""
    tokens_per_job: Count = 8
    """Valid tokens of a job at once; a job that asks again gets the token it has."""


class OverLimit(QtideError):  # noqa: N818 - named after what happened
    """The caller is at its limit and may try again later (HTTP 429), maybe at a known time."""

    def __init__(self, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after


class Overloaded(QtideError):  # noqa: N818 - named after what happened
    """All callers together use all that the service has (HTTP 503)."""


class TooLarge(QtideError):  # noqa: N818 - named after what happened
    """A request has more bytes than allowed (HTTP 413)."""


class StorageFull(QtideError):  # noqa: N818 - named after what happened
    """A user has stored as much as allowed, or the disk is nearly full (HTTP 507)."""


class WrongSite(QtideError):  # noqa: N818 - named after what happened
    """A web page of another site sent the request (HTTP 403)."""


MOST_KNOWN = 10_000
"""Number of buckets beyond which empty ones are forgotten."""
LONGEST_DELAY = 10.0
"""Maximum seconds to delay a caller; a request that would wait longer is refused."""
ALONE = 1.0
"""Seconds without a request from anybody else after which a caller counts as alone."""
SLICE = 20
"""Items of a list to process before others get their turn."""
REST = 2.0
"""How long to rest after a slice of a list, as a multiple of the time the slice took."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class LeakyBucket:
    """A bucket per caller: what it takes fills the bucket, which leaks `rate` per second.

    A caller whose bucket holds more than `burst` waits (`wait`) or is refused (`check`) until
    enough has leaked.
    """

    def __init__(self, world: World, rate: float, burst: float) -> None:
        self._world = world
        self._rate = rate
        self._burst = burst
        self._empty_at: dict[str, float] = {}
        """The time at which each caller's bucket will be empty."""

    def adopt(self, rate: float, burst: float) -> None:
        """Change rate and burst; keep the time at which each bucket will be empty."""
        self._rate = rate
        self._burst = burst

    def charge(self, who: str, amount: float) -> None:
        """Add what a caller takes to its bucket."""
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
    """Places shared by all callers, of which each caller may hold only some.

    A caller that finds none free is refused (`take`) or waits (`turn`). Waiting callers get places
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
        """Change the numbers of places; places already taken stay taken."""
        self._each = each
        self._total = total

    @property
    def taken(self) -> int:
        """Number of places that all callers hold together."""
        return self._taken

    def take(self, who: str, amount: int = 1) -> None:
        """Take places immediately, or refuse."""
        if self._held[who] + amount > self._each:
            raise OverLimit(
                f"{who} may have {self._each} {self._noun} at once; wait until some have ended"
            )
        if self._total is not None and self._taken + amount > self._total:
            raise Overloaded(f"the service has as many {self._noun} as it can hold; try again soon")
        self._held[who] += amount
        self._taken += amount

    def give_back(self, who: str, amount: int = 1) -> None:
        """Return places, and pass them to the waiting callers in turn."""
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
                self._waiting[following] = queue  # behind all other callers
            if not future.done():
                self.take(following)
                release(future)

    @contextmanager
    def taking(self, who: str, amount: int = 1) -> Iterator[None]:
        """Hold places while the block runs, or refuse."""
        self.take(who, amount)
        try:
            yield
        finally:
            self.give_back(who, amount)

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it while the block runs."""
        await self.wait(who)
        try:
            yield
        finally:
            self.give_back(who)

    async def wait(self, who: str) -> None:
        """Wait for a place, and take it."""
        full = self._total is not None and self._taken >= self._total
        if not full and self._held[who] < self._each:  # then no waiting caller may take it
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
            elif future.done() and not future.cancelled():  # the place was granted in the meantime
                self.give_back(who)
            raise


class Contention:
    """Tells whether several callers are active now.

    This is not a limit itself: it tells when to apply the limits that only protect other callers.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last, self._last_at = "", -ALONE
        self._other_at = -ALONE
        """When somebody other than the last caller last sent a request."""

    def joins(self, who: str) -> bool:
        """Note a request; return whether others have sent one recently."""
        now = self._world.now()
        if who != self._last:
            self._last, self._other_at = who, self._last_at
        self._last_at = now
        return now - self._other_at < ALONE


async def in_slices(
    world: World, items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    """Process a long list in slices, and rest after each for longer than it took."""
    results: list[Result] = []
    for first in range(0, len(items), SLICE):
        began = world.now()
        results += [work(each) for each in items[first : first + SLICE]]
        if first + SLICE < len(items):
            await world.sleep(REST * (world.now() - began))
    return results
