"""Fair share: first the account with the least device time for its share, then likewise its user.

A user's jobs follow in the order in which they began. Two races, one of accounts and one of the
users within each, pick the next task. The position of a task is estimated when it arrives, as the
claim of its account at which its turn should come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeVar

from qtide.service.policies.policy import Ahead, Key, Ordered, Ranked, ShareOwner, Shares, by_job
from qtide.service.task import ServiceTask

AGEING = 0.1
"""QPU seconds that one second of waiting since last being served makes up for."""
FORGET_AT = 10_000
"""Number of contenders from which on those who lose nothing by it are forgotten."""

Rank = tuple[float, float, str]
One = TypeVar("One", bound="Contender")


class Contender:
    """A user or account that competes for the device, with a share of `weight`."""

    def __init__(self, name: str, weight: float = 1.0) -> None:
        self.name = name
        self.weight = weight
        self.claim = float("-inf")
        self.since = 0.0
        """When it began to wait or was last served."""
        self.waits = False

    @property
    def rank(self) -> Rank:
        """The sort key; the contender with the lowest rank is next."""
        return self.claim + AGEING * self.since, self.since, self.name


class Race:
    """The waiting contenders, in order."""

    def __init__(self) -> None:
        self.floor = 0.0
        """The lowest claim among those that waited when one was served; it never falls."""
        self._ranks: list[Rank] = []
        self._claims: list[tuple[float, str]] = []

    def __bool__(self) -> bool:
        return bool(self._ranks)

    @property
    def first(self) -> str:
        """The name of the next contender."""
        return self._ranks[0][-1]

    def enter(self, one: Contender, credit: float, now: float) -> None:
        """Add a contender that has tasks again."""
        one.claim = max(one.claim, self.floor - credit)
        one.since, one.waits = now, True
        self._put_in(one)

    def leave(self, one: Contender) -> None:
        """Remove a contender that has no more tasks."""
        self._take_out(one)
        one.waits = False

    def serve(self, one: Contender, seconds: float, now: float) -> None:
        """Charge a contender the expected seconds of a task that goes to the device."""
        self.floor = max(self.floor, self._claims[0][0])
        self._take_out(one)
        one.claim += seconds / one.weight
        one.since = now
        self._put_in(one)

    def charge(self, one: Contender, seconds: float) -> None:
        """Correct a charge by the seconds that a task took beyond, or below, what was expected."""
        if one.waits:
            self._take_out(one)
        one.claim += seconds / one.weight
        if one.waits:
            self._put_in(one)

    def _put_in(self, one: Contender) -> None:
        insort(self._ranks, one.rank)
        insort(self._claims, (one.claim, one.name))

    def _take_out(self, one: Contender) -> None:
        del self._ranks[bisect_left(self._ranks, one.rank)]
        del self._claims[bisect_left(self._claims, (one.claim, one.name))]


def forget(contenders: dict[str, One], below: float) -> dict[str, One]:
    """The contenders to remember; the others would start from the same claim anyway."""
    if len(contenders) < FORGET_AT:
        return contenders
    return {name: one for name, one in contenders.items() if one.waits or one.claim > below}


class FairUser(Contender):
    """A user of one account, with its waiting tasks."""

    def __init__(self, name: str, shares: Shares) -> None:
        super().__init__(name)
        self.tasks = Ordered(by_job(shares))


class FairAccount(Contender):
    """An account, with the race of its users."""

    def __init__(self, name: str, weight: float) -> None:
        super().__init__(name, weight)
        self.users: dict[str, FairUser] = {}
        self.race = Race()
        self.order = Ranked()
        """All its tasks, by the claim of their user at which they should run."""


class FairShare:
    """The fair-share policy over all users of all accounts."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._accounts: dict[str, FairAccount] = {}
        self._race = Race()
        self._order = Ranked()
        """All tasks, by the claim of their account at which they should run."""
        self._promised = Ranked()
        self._keys: dict[str, tuple[Key, Key]] = {}

    def add(self, task: ServiceTask, now: float) -> None:
        """Add a task to its user's; a user or account that had none enters the race."""
        account, user = self._find(task)
        owner = ShareOwner(account.name, user.name)
        user.tasks.add(task, now)
        if not user.waits:
            account.race.enter(user, self._shares.credit(owner, now), now)
        if not account.waits:
            credit = self._shares.credit(account.name, now, account.weight)
            self._race.enter(account, credit, now)
        self._estimate(task, account, user)

    def remove(self, task: ServiceTask) -> None:
        """Remove a task that no longer waits."""
        account, user = self._find(task)
        user.tasks.remove(task)
        of_account, of_all = self._keys.pop(task.id)
        account.order.remove(of_account)
        self._order.remove(of_all)
        if task.latest is not None:
            self._promised.remove(of_all)
        if not user.tasks:
            account.race.leave(user)
            account.users = forget(account.users, account.race.floor - self._shares.head_start)
        if not account.race:
            self._race.leave(account)
            self._accounts = forget(self._accounts, self._race.floor - self._shares.head_start)

    def first(self) -> ServiceTask:
        """The next task of the next user in the next account."""
        account = self._accounts[self._race.first]
        return account.users[account.race.first].tasks.first()

    def ahead(self, task: ServiceTask) -> Ahead:
        """The work that should run before a task."""
        key = self._keys[task.id][1]
        tasks, seconds = self._order.before(key)
        return Ahead(tasks, seconds, self._promised.before(key).seconds)

    def serve(self, task: ServiceTask, now: float) -> None:
        """Charge user and account the expected seconds of a task."""
        account, user = self._find(task)
        account.race.serve(user, task.left, now)
        self._race.serve(account, task.left, now)

    def settle(self, task: ServiceTask, used: float, now: float) -> None:
        """Correct the charge of user and account to what a task took."""
        account, user = self._find(task)
        account.race.charge(user, used - task.left)
        self._race.charge(account, used - task.left)

    def outranks(self, task: ServiceTask, running: ServiceTask) -> bool:
        """Never: shares even out from task to task, not within one."""
        return False

    def _find(self, task: ServiceTask) -> tuple[FairAccount, FairUser]:
        owner = ShareOwner.of(task.caller)
        account = self._accounts.get(owner.account)
        if account is None:
            weight = self._shares.weight(owner.account)
            account = self._accounts[owner.account] = FairAccount(owner.account, weight)
        user = account.users.get(owner.user)
        if user is None:
            user = account.users[owner.user] = FairUser(owner.user, self._shares)
        return account, user

    def _estimate(self, task: ServiceTask, account: FairAccount, user: FairUser) -> None:
        """Estimate the claims of its user and account at which a task's turn should come."""
        due = user.claim + user.tasks.seconds_before(task)
        of_account = (due, task.submitted, task.id)
        due = account.claim + account.order.before(of_account).seconds / account.weight
        of_all = (due, task.submitted, task.id)
        self._keys[task.id] = of_account, of_all
        account.order.add(of_account, task.left)
        self._order.add(of_all, task.left)
        if task.latest is not None:
            self._promised.add(of_all, task.left)
