"""Fair share: the account with the least recent usage comes first, and within it the user.

Usage counts less as time passes. An owner gains credit while waiting, counted since last being
served, so that no stream of newcomers starves the others. The tasks of one user keep their order,
so a thousand of them do not delay other users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Protocol

from qtide.service.policies.ordered import Ordered, arrival
from qtide.service.policies.shares import Owner, Shares
from qtide.service.task import Task

AGEING = 0.1
"""QPU seconds that a second of waiting makes up for."""


class Contender(Protocol):
    """What may be served next: a user, or an account with several users."""

    claim: float
    """What counts against it: the contender with the least goes first."""
    credit: float

    @property
    def head(self) -> Task | None:
        """Its next task."""

    def serve(self) -> Task:
        """Return the head, and be charged for it."""


class UserQueue:
    """The tasks of one user."""

    def __init__(self, claim: float, credit: float, head: Task, tasks: Iterator[Task]) -> None:
        self.claim = claim
        self.credit = credit
        self.head: Task | None = head
        self._tasks = tasks

    def serve(self) -> Task:
        """The next task in order."""
        assert self.head is not None
        task, self.head = self.head, next(self._tasks, None)
        self.claim += task.seconds
        return task


class Group:
    """Contenders among whom the one with the least claim is served."""

    credit = 0.0

    def __init__(self, claim: float, weight: float, members: Sequence[Contender]) -> None:
        self.claim = claim
        self._weight = weight
        self._members = members
        self._heap = [self._rank(number) for number in range(len(members))]
        heapify(self._heap)

    @property
    def head(self) -> Task | None:
        """The next task of the member that is next."""
        return self._members[self._heap[0][2]].head if self._heap else None

    def serve(self) -> Task:
        """Serve the member that is next."""
        number = self._heap[0][2]
        task = self._members[number].serve()
        self.claim += task.seconds / self._weight
        if self._members[number].head is None:
            heappop(self._heap)
        else:
            heapreplace(self._heap, self._rank(number))
        return task

    def _rank(self, number: int) -> tuple[float, float, int]:
        member = self._members[number]
        assert member.head is not None
        return member.claim, member.head.submitted, number


class FairShare:
    """A queue for each owner; the owner with the least claim is next."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._queues: dict[Owner, Ordered] = {}

    def add(self, task: Task) -> None:
        """Add a task to its owner's queue."""
        self._queues.setdefault(Owner.of(task.caller), Ordered(arrival)).add(task)

    def remove(self, task: Task) -> None:
        """Let it wait no longer."""
        owner = Owner.of(task.caller)
        self._queues[owner].remove(task)
        if self._queues[owner].empty:
            del self._queues[owner]

    def order(self, now: float) -> Iterator[Task]:
        """Serve one account after the other, and within each its users."""
        accounts: dict[str, list[Contender]] = {}
        for owner, queue in self._queues.items():
            accounts.setdefault(owner.account, []).append(self._user(owner, queue, now))
        groups: list[Contender] = [
            self._account(name, users, now) for name, users in accounts.items()
        ]
        all_of_them = Group(0.0, 1.0, groups)
        while all_of_them.head is not None:
            yield all_of_them.serve()

    def _user(self, owner: Owner, queue: Ordered, now: float) -> UserQueue:
        tasks = queue.order(now)
        head = next(tasks)
        waited = now - max(head.submitted, self._shares.served.get(owner, head.submitted))
        credit = AGEING * max(0.0, waited)
        return UserQueue(self._shares.used(owner, now) - credit, credit, head, tasks)

    def _account(self, name: str, users: list[Contender], now: float) -> Group:
        weight = self._shares.weight(name)
        claim = self._shares.used(name, now) / weight - max(user.credit for user in users)
        return Group(claim, weight, users)
