"""What every policy offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

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
