"""The interface of policies, the shares they use, and the policies with a fixed order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from qtide.core.plugins import Plugins
from qtide.service.task import Caller, ServiceTask

HALF_LIFE = 86_400.0
"""Seconds after which usage counts for half."""
HEAD_START = 10.0
"""Seconds by which an owner goes before others, less its recent usage."""
MOST_JOBS = 100_000
"""Maximum number of jobs to remember; beyond it, the older half is forgotten."""


class ShareOwner(NamedTuple):
    """A user on behalf of an account."""

    account: str
    user: str

    @staticmethod
    def of(caller: Caller) -> ShareOwner:
        """The owner of a caller's tasks; a user without an account is its own account."""
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
        """Switch to other settings; keep the usage."""
        self.head_start = head_start
        self._weights = dict(weights)
        self._half_life = half_life

    def charge(self, owner: ShareOwner, seconds: float, now: float) -> None:
        """Add seconds of usage to a user and its account."""
        if not seconds:
            return
        for each in (owner.account, owner):
            self._used[each] = (self.used(each, now) + seconds, now)

    def used(self, subject: str | ShareOwner, now: float) -> float:
        """Decayed usage in seconds of an account or of one of its users."""
        seconds, at = self._used.get(subject, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life))

    def owners(self) -> list[ShareOwner]:
        """All owners with some usage."""
        return [each for each in self._used if isinstance(each, ShareOwner)]

    def weight(self, account: str) -> float:
        """The share of an account; the default is 1."""
        return self._weights.get(account, 1.0)

    def credit(self, subject: str | ShareOwner, now: float, weight: float = 1.0) -> float:
        """How far a subject goes before others: the head start less its recent usage, if positive.

        More usage than that does not put a subject further behind the others.
        """
        return max(0.0, self.head_start - self.used(subject, now) / weight)

    def began(self, task: ServiceTask) -> float:
        """When the task's job submitted its first task; without a job, when it was submitted."""
        if task.caller.job is None:
            return task.submitted
        if len(self._jobs) >= MOST_JOBS:
            self._jobs = dict(list(self._jobs.items())[MOST_JOBS // 2 :])
        return self._jobs.setdefault((task.caller.user, task.caller.job), task.submitted)

    def note_job(self, user: str, job: int, began: float) -> None:
        """Remember a job from before a restart."""
        self._jobs[user, job] = began


class Ahead(NamedTuple):
    """The work that should run before a task, if nothing else is submitted."""

    tasks: int
    seconds: float
    promised: float
    """Seconds of the tasks among them that were promised a start."""


class Policy(Protocol):
    """The order of one device's waiting tasks. No call may look at all of them."""

    def add(self, task: ServiceTask, now: float) -> None:
        """Add a waiting task."""

    def remove(self, task: ServiceTask) -> None:
        """Remove a task that no longer waits."""

    def first(self) -> ServiceTask:
        """The next task."""

    def ahead(self, task: ServiceTask) -> Ahead:
        """The work ahead of a waiting task."""

    def serve(self, task: ServiceTask, now: float) -> None:
        """Note that a waiting task, mostly the first, goes to the device; `remove` follows."""

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """Note that a task has left the device after `used` seconds on it."""

    def outranks(self, task: ServiceTask, running: ServiceTask) -> bool:
        """Whether a task on the device gives way to a waiting one, if it can."""


POLICIES: Plugins[Callable[[Shares], Policy]] = Plugins("qtide.policies", "policy")
"""Each policy is registered as a callable that takes the `Shares`."""


Place = tuple[float, float, float, str]

AGEING = 60.0
"""Seconds of waiting that outweigh one step of priority."""
PATIENCE = 10.0
"""Seconds of waiting that outweigh one second of expected duration."""
OVERTAKEN = 86_400.0
"""Seconds of waiting after which later tasks of older jobs no longer overtake a task."""


def arrival(task: ServiceTask) -> Place:
    """Order tasks by arrival."""
    return task.submitted, 0.0, task.submitted, task.id


def urgency(task: ServiceTask) -> Place:
    """Order tasks by arrival; the higher its priority, the earlier a task counts as submitted."""
    return task.submitted - AGEING * task.priority, 0.0, task.submitted, task.id


def expected(task: ServiceTask) -> Place:
    """Order tasks by arrival; the longer it should take, the later a task counts as submitted."""
    return task.submitted + PATIENCE * task.left, 0.0, task.submitted, task.id


def by_job(shares: Shares) -> Callable[[ServiceTask], Place]:
    """Order tasks by job, oldest first, so that jobs end one by one instead of all late."""

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
        """Add a waiting task."""
        place = self._place(task)
        self._waiting[task.id] = task, place
        self._order.add(place, task.left)
        if task.latest is not None:
            self._promised.add(place, task.left)

    def remove(self, task: ServiceTask) -> None:
        """Remove a task that no longer waits."""
        _, place = self._waiting.pop(task.id)
        self._order.remove(place)
        if task.latest is not None:
            self._promised.remove(place)

    def first(self) -> ServiceTask:
        """The first task in order."""
        return self._waiting[self._order.first[-1]][0]

    def seconds_before(self, task: ServiceTask) -> float:
        """Total seconds of the tasks before it."""
        return self._order.before(self._waiting[task.id][1]).seconds

    def ahead(self, task: ServiceTask) -> Ahead:
        """The work before it."""
        _, place = self._waiting[task.id]
        tasks, seconds = self._order.before(place)
        return Ahead(tasks, seconds, self._promised.before(place).seconds)

    def serve(self, task: ServiceTask, now: float) -> None:
        """Do nothing: no other task's place depends on it."""

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """Do nothing: no task's place depends on it."""

    def outranks(self, task: ServiceTask, running: ServiceTask) -> bool:
        """Whether the running task would be behind the other one if it waited as well."""
        return self._place(task) < self._place(running)


def fifo(_: Shares) -> Ordered:
    """First come, first served."""
    return Ordered(arrival)


def priority(_: Shares) -> Ordered:
    """Highest priority first; waiting eventually outweighs priority."""
    return Ordered(urgency)


def shortest(_: Shares) -> Ordered:
    """Shortest expected duration first; waiting eventually outweighs duration."""
    return Ordered(expected)


def jobs(shares: Shares) -> Ordered:
    """Oldest job first; no task is overtaken for longer than a day."""
    return Ordered(by_job(shares))


Key = tuple[Any, ...]
"""A sort key of tasks; its last part is the task's id, so no two are equal."""

FULL = 512
"""Maximum number of keys in a block, beyond which it is split."""


class Before(NamedTuple):
    """Number and total seconds of the tasks before a key."""

    tasks: int
    seconds: float


class RankedBlock:
    """A run of consecutive keys, with the seconds of each."""

    __slots__ = ("_slacks", "keys", "seconds", "total")

    def __init__(self, keys: list[Key], seconds: list[float]) -> None:
        self.keys = keys
        self.seconds = seconds
        self.changed()

    def changed(self) -> None:
        """Recompute the total, so that rounding errors do not accumulate."""
        self.total = sum(self.seconds)
        self._slacks: dict[float, float] = {}

    def insert(self, key: Key, seconds: float) -> None:
        """Insert a key; most belong at the end."""
        place = len(self.keys) if key > self.keys[-1] else bisect_left(self.keys, key)
        self.keys.insert(place, key)
        self.seconds.insert(place, seconds)
        self.total += seconds
        if self._slacks:
            self._slacks = {}

    def remove(self, key: Key) -> None:
        """Remove a key."""
        place = bisect_left(self.keys, key)
        assert self.keys[place] == key
        del self.keys[place], self.seconds[place]
        self.changed()

    def slack(self, rate: float) -> float:
        """Minimum over the keys of `rate * key[0]` less the seconds before the key in the block."""
        if rate not in self._slacks:
            before = accumulate(self.seconds, initial=0.0)
            self._slacks[rate] = min(rate * key[0] - at for key, at in zip(self.keys, before))  # noqa: B905 - there is one more sum than keys
        return self._slacks[rate]


class Ranked:
    """Sorted keys, each with its seconds, in blocks."""

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
        """Total seconds of all keys."""
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
        """Remove a key."""
        number = bisect_left(self._lasts, key)
        block = self._blocks[number]
        block.remove(key)
        if block.keys:
            self._update_sums(number)
        else:
            del self._blocks[number], self._lasts[number]
            del self._counts[number], self._totals[number]

    def before(self, key: Key) -> Before:
        """Number and total seconds of the tasks before a key, which need not be present."""
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
        """Minimum over the keys of `rate * key[0]` less all seconds before the key.

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
        """The last key for which `key[0]` less all seconds before it is below `slack`."""
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
