"""Fair share: whoever used the QPU least of late comes first, accounts before users.

What was used counts less as time goes by. Who has waited since being served last gains on the
others, so that no stream of newcomers starves anybody; the tasks of one user keep their order, so
a thousand of them delay nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple, Protocol

from qtide.service.policies.ordered import Ordered, arrival
from qtide.service.task import Caller, Task

HALF_LIFE = 86_400.0
"""Seconds after which what was used counts half."""
AGEING = 0.1
"""QPU seconds that a second of waiting makes up for."""


class Owner(NamedTuple):
    """A user in the name of an account."""

    account: str
    user: str

    @staticmethod
    def of(caller: Caller) -> Owner:
        """The owner of what a caller hands in; a user without an account stands alone."""
        return Owner(caller.account or caller.user, caller.user)


class Shares:
    """What each owner has used of the devices, decayed; one record for all devices."""

    def __init__(
        self, weights: Mapping[str, float] | None = None, half_life: float = HALF_LIFE
    ) -> None:
        self._weights = dict(weights or {})
        self._half_life = half_life
        self._used: dict[str | Owner, tuple[float, float]] = {}
        self.served: dict[Owner, float] = {}
        """When each was served last."""

    def charge(self, owner: Owner, seconds: float, now: float) -> None:
        """Count seconds of a device; negative ones give back what was counted too much."""
        for holder in (owner.account, owner):
            self._used[holder] = (max(0.0, self.used(holder, now) + seconds), now)

    def serve(self, owner: Owner, seconds: float, now: float) -> None:
        """Count what somebody gets now."""
        self.charge(owner, seconds, now)
        self.served[owner] = now

    def used(self, holder: str | Owner, now: float) -> float:
        """The decayed seconds of an account, or of one of its users."""
        seconds, at = self._used.get(holder, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life))

    def weight(self, account: str) -> float:
        """The share an account is entitled to, relative to the others' 1."""
        return self._weights.get(account, 1.0)


class Contender(Protocol):
    """Somebody who wants to be served: a user, or an account with several."""

    claim: float
    """What counts against it: the least goes first."""
    credit: float

    @property
    def head(self) -> Task | None:
        """The task it wants to have served next."""

    def serve(self) -> Task:
        """Give up the head, and be charged for it."""


class Line:
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
        """The task of whoever is next."""
        return self._members[self._heap[0][2]].head if self._heap else None

    def serve(self) -> Task:
        """The next one's next task."""
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
    """A line for each owner; the one who is owed most is next."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._lines: dict[Owner, Ordered] = {}

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def add(self, task: Task) -> None:
        """Let a task wait in its owner's line."""
        self._lines.setdefault(Owner.of(task.caller), Ordered(arrival)).add(task)

    def remove(self, task: Task) -> None:
        """Let it wait no longer."""
        owner = Owner.of(task.caller)
        self._lines[owner].remove(task)
        if not len(self._lines[owner]):
            del self._lines[owner]

    def order(self, now: float) -> Iterator[Task]:
        """Serve the accounts in turn, and within each its users."""
        accounts: dict[str, list[Contender]] = {}
        for owner, line in self._lines.items():
            accounts.setdefault(owner.account, []).append(self._user(owner, line, now))
        groups: list[Contender] = [
            self._account(name, users, now) for name, users in accounts.items()
        ]
        all_of_them = Group(0.0, 1.0, groups)
        while all_of_them.head is not None:
            yield all_of_them.serve()

    def _user(self, owner: Owner, line: Ordered, now: float) -> Line:
        tasks = line.order(now)
        head = next(tasks)
        waited = now - max(head.submitted, self._shares.served.get(owner, head.submitted))
        credit = AGEING * max(0.0, waited)
        return Line(self._shares.used(owner, now) - credit, credit, head, tasks)

    def _account(self, name: str, users: list[Contender], now: float) -> Group:
        weight = self._shares.weight(name)
        claim = self._shares.used(name, now) / weight - max(user.credit for user in users)
        return Group(claim, weight, users)
