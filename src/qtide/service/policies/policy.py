"""Policies: what each offers, what it knows of shares, and those whose order is fixed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from qtide.core.plugins import Plugins
from qtide.service.task import Caller, ServiceTask

HALF_LIFE = 86_400.0
"""Seconds after which usage counts half."""
HEAD_START = 10.0
"""Seconds of recent usage up to which an owner goes before others, by what is missing."""
MOST_JOBS = 100_000
"""Jobs remembered; then the older half is forgotten."""


class ShareOwner(NamedTuple):
    """A user on behalf of an account."""

    account: str
    user: str

    @staticmethod
    def of(caller: Caller) -> ShareOwner:
        """The owner of what a caller submits; a user without an account is an account of one."""
        return ShareOwner(caller.account or caller.user, caller.user)


class Shares:
    """The decayed usage of each owner, summed over all devices."""

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        half_life: float = HALF_LIFE,
        head_start: float = HEAD_START,
    ) -> None:
        self.head_start = head_start
        self._weights = dict(weights or {})
        self._half_life = half_life
        self._used: dict[str | ShareOwner, tuple[float, float]] = {}
        self._jobs: dict[tuple[str, int], float] = {}

    def adopt(self, weights: Mapping[str, float], half_life: float, head_start: float) -> None:
        """Share by other settings from now on; what was used stays."""
        self.head_start = head_start
        self._weights = dict(weights)
        self._half_life = half_life

    def charge(self, owner: ShareOwner, seconds: float, now: float) -> None:
        """Add seconds of usage."""
        if not seconds:
            return
        for each in (owner.account, owner):
            self._used[each] = (self.used(each, now) + seconds, now)

    def used(self, subject: str | ShareOwner, now: float) -> float:
        """The decayed seconds of an account, or of one of its users."""
        seconds, at = self._used.get(subject, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life))

    def weight(self, account: str) -> float:
        """The share of an account; the default is 1."""
        return self._weights.get(account, 1.0)

    def credit(self, subject: str | ShareOwner, now: float, weight: float = 1.0) -> float:
        """By how much a subject goes before others: what its recent usage is below the head start.

        Beyond that, usage of long ago puts nobody last: all share alike.
        """
        return max(0.0, self.head_start - self.used(subject, now) / weight)

    def began(self, task: ServiceTask) -> float:
        """When the job of a task submitted its first one; a task of no job stands for itself."""
        if task.caller.job is None:
            return task.submitted
        if len(self._jobs) >= MOST_JOBS:
            self._jobs = dict(list(self._jobs.items())[MOST_JOBS // 2 :])
        return self._jobs.setdefault((task.caller.user, task.caller.job), task.submitted)

    def note_job(self, user: str, job: int, began: float) -> None:
        """Remember a job of before a restart."""
        self._jobs[user, job] = began


class Ahead(NamedTuple):
    """What should run before a task, if nothing else is submitted."""

    tasks: int
    seconds: float
    promised: float
    """Seconds of those among them that were promised a start."""


class Policy(Protocol):
    """The waiting tasks of one device, and which of them is next. No call looks at all of them."""

    def add(self, task: ServiceTask, now: float) -> None:
        """Let a task wait."""

    def remove(self, task: ServiceTask) -> None:
        """Let it wait no longer."""

    def first(self) -> ServiceTask:
        """The task that is next."""

    def ahead(self, task: ServiceTask) -> Ahead:
        """What is ahead of a waiting task."""

    def serve(self, task: ServiceTask, now: float) -> None:
        """A waiting task, mostly the first, goes to the device; it is removed afterwards."""

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """A task has left the device, which it occupied for so many seconds."""


POLICIES: Plugins[Callable[[Shares], Policy]] = Plugins("qtide.policies", "policy")
"""A policy is registered as a callable that takes the `Shares`."""


Place = tuple[float, float, float, str]

AGEING = 60.0
"""Seconds of waiting that outweigh one step of priority."""
PATIENCE = 10.0
"""Seconds of waiting that outweigh one second of expected occupation."""
OVERTAKEN = 86_400.0
"""Seconds after which a task is no longer overtaken by later ones of older jobs."""


def arrival(task: ServiceTask) -> Place:
    """First come, first served."""
    return task.submitted, 0.0, task.submitted, task.id


def urgency(task: ServiceTask) -> Place:
    """The higher its priority, the earlier it counts as submitted."""
    return task.submitted - AGEING * task.priority, 0.0, task.submitted, task.id


def expected(task: ServiceTask) -> Place:
    """The longer it should take, the later it counts as submitted."""
    return task.submitted + PATIENCE * task.seconds, 0.0, task.submitted, task.id


def by_job(shares: Shares) -> Callable[[ServiceTask], Place]:
    """The oldest job is first, so that jobs end one after the other, not all of them late."""

    def place(task: ServiceTask) -> Place:
        rank = max(shares.began(task), task.submitted - OVERTAKEN)
        return rank, task.caller.job or 0.0, task.submitted, task.id

    return place


class Ordered:
    """Tasks in a fixed order."""

    def __init__(self, place: Callable[[ServiceTask], Place]) -> None:
        self._place = place
        self._order = Ranked()
        self._promised = Ranked()
        self._waiting: dict[str, tuple[ServiceTask, Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, task: ServiceTask, now: float) -> None:
        """Let a task wait."""
        place = self._place(task)
        self._waiting[task.id] = task, place
        self._order.add(place, task.seconds)
        if task.latest is not None:
            self._promised.add(place, task.seconds)

    def remove(self, task: ServiceTask) -> None:
        """Let it wait no longer."""
        _, place = self._waiting.pop(task.id)
        self._order.remove(place)
        if task.latest is not None:
            self._promised.remove(place)

    def first(self) -> ServiceTask:
        """The first in order."""
        return self._waiting[self._order.first[-1]][0]

    def seconds_before(self, task: ServiceTask) -> float:
        """The seconds of what is before it in order."""
        return self._order.before(self._waiting[task.id][1]).seconds

    def ahead(self, task: ServiceTask) -> Ahead:
        """What is before it in order."""
        _, place = self._waiting[task.id]
        tasks, seconds = self._order.before(place)
        return Ahead(tasks, seconds, self._promised.before(place).seconds)

    def serve(self, task: ServiceTask, now: float) -> None:
        """Nobody else's place depends on it."""

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """Nobody's place depends on it."""


def fifo(_: Shares) -> Ordered:
    """The oldest task is first."""
    return Ordered(arrival)


def priority(_: Shares) -> Ordered:
    """The highest priority is first; waiting outweighs it in time."""
    return Ordered(urgency)


def shortest(_: Shares) -> Ordered:
    """The shortest expected is first; waiting outweighs it in time."""
    return Ordered(expected)


def jobs(shares: Shares) -> Ordered:
    """The job that has been going longest is first; nobody is overtaken for longer than a day."""
    return Ordered(by_job(shares))


Key = tuple[Any, ...]
"""What tasks are ordered by; its last part is the task's id, so no two are equal."""

FULL = 512
"""Keys of a block at most; then it is split."""


class Before(NamedTuple):
    """What is before a place."""

    tasks: int
    seconds: float


class RankedBlock:
    """Some keys that follow each other, and the seconds of each."""

    __slots__ = ("_slacks", "keys", "seconds", "total")

    def __init__(self, keys: list[Key], seconds: list[float]) -> None:
        self.keys = keys
        self.seconds = seconds
        self.changed()

    def changed(self) -> None:
        """Add up again, so that no rounding errors gather."""
        self.total = sum(self.seconds)
        self._slacks: dict[float, float] = {}

    def insert(self, key: Key, seconds: float) -> None:
        """Insert a key; most come last."""
        place = len(self.keys) if key > self.keys[-1] else bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.seconds.insert(place, seconds)
        self.total += seconds
        if self._slacks:
            self._slacks = {}

    def remove(self, key: Key) -> None:
        """Take a key out."""
        place = bisect_left(self.keys, key)
        assert self.keys[place] == key
        del self.keys[place], self.seconds[place]
        self.changed()

    def slack(self, rate: float) -> float:
        """The least of `rate` times a key's first part, less the seconds before it in the block."""
        if rate not in self._slacks:
            before = accumulate(self.seconds, initial=0.0)
            self._slacks[rate] = min(rate * key[0] - at for key, at in zip(self.keys, before))  # noqa: B905 - the last sum is of no key
        return self._slacks[rate]


class Ranked:
    """Keys in order, each with its seconds."""

    def __init__(self) -> None:
        self._blocks: list[RankedBlock] = []
        self._lasts: list[Key] = []
        """The last key of each block."""
        self._counts: list[int] = []
        self._totals: list[float] = []

    def __len__(self) -> int:
        return sum(self._counts)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __iter__(self) -> Iterator[Key]:
        for block in self._blocks:
            yield from block.keys

    @property
    def first(self) -> Key:
        """The first key."""
        return self._blocks[0].keys[0]

    @property
    def seconds(self) -> float:
        """Of all."""
        return sum(self._totals)

    def add(self, key: Key, seconds: float) -> None:
        """Insert a key."""
        if not self._blocks:
            self._blocks.append(RankedBlock([key], [seconds]))
            self._insert_sums(0)
            return
        number = len(self._blocks) - 1
        if key <= self._lasts[-1]:
            number = bisect_left(self._lasts, key)
        block = self._blocks[number]
        block.insert(key, seconds)
        if len(block.keys) > FULL:
            self._split(number)
        else:
            self._update_sums(number)

    def remove(self, key: Key) -> None:
        """Take a key out."""
        number = bisect_left(self._lasts, key)
        block = self._blocks[number]
        block.remove(key)
        if block.keys:
            self._update_sums(number)
        else:
            del self._blocks[number], self._lasts[number]
            del self._counts[number], self._totals[number]

    def before(self, key: Key) -> Before:
        """What is before a key, which need not be here."""
        if not self._blocks:
            return Before(0, 0.0)
        number = bisect_left(self._lasts, key)
        tasks, seconds = sum(self._counts[:number]), sum(self._totals[:number])
        if number < len(self._blocks):
            block = self._blocks[number]
            place = bisect_left(block.keys, key)
            tasks, seconds = tasks + place, seconds + sum(block.seconds[:place])
        return Before(tasks, seconds)

    def slack(self, rate: float, since: Key = ()) -> float:
        """The least of `rate` times a key's first part, less all seconds before it.

        Only keys from `since` on count.
        """
        number = bisect_left(self._lasts, since)
        least, before = float("inf"), sum(self._totals[:number])
        for block in self._blocks[number:]:
            part = block
            if since and block.keys[0] < since:
                place = bisect_left(block.keys, since)
                before += sum(block.seconds[:place])
                part = RankedBlock(block.keys[place:], block.seconds[place:])
            least = min(least, part.slack(rate) - before)
            before += part.total
        return least

    def last_below(self, slack: float) -> Key | None:
        """The last key whose first part, less all seconds before it, is below a number."""
        before = self.seconds
        for block in reversed(self._blocks):
            before -= block.total
            if block.slack(1.0) - before < slack:
                starts = accumulate(block.seconds, initial=before)
                found = [key for key, at in zip(block.keys, starts) if key[0] - at < slack]  # noqa: B905 - as above
                if found:
                    return found[-1]
        return None

    def _split(self, number: int) -> None:
        block, half = self._blocks[number], FULL // 2
        self._blocks.insert(number, RankedBlock(block.keys[:half], block.seconds[:half]))
        del block.keys[:half], block.seconds[:half]
        block.changed()
        self._insert_sums(number)
        self._update_sums(number + 1)

    def _insert_sums(self, number: int) -> None:
        block = self._blocks[number]
        self._lasts.insert(number, block.keys[-1])
        self._counts.insert(number, len(block.keys))
        self._totals.insert(number, block.total)

    def _update_sums(self, number: int) -> None:
        block = self._blocks[number]
        self._lasts[number] = block.keys[-1]
        self._counts[number] = len(block.keys)
        self._totals[number] = block.total
