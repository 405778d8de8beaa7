"""Allocations: QPU seconds that an account or a user may use in a period, checked at acceptance.

A task reserves its expected seconds when it is accepted, and is charged what it took. What was used
is not stored: it follows from the books.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from qtide.core.errors import UsageError
from qtide.core.world.world import World
from qtide.service.configuration import DAY
from qtide.service.store import Database, Store
from qtide.service.task import Caller, Conflict, Forbidden, ServiceTask

ROUNDING = 1e-6
"""Seconds by which sums of floats may be wrong."""
MOST_KNOWN = 10_000
FOREVER = 1e11
"""A time after all others, in seconds since 1970."""


class NothingLeft(Forbidden):
    """A task takes more than is left of an allocation."""


class AllocationPeriod(StrEnum):
    """The time for which an allocation's seconds are."""

    DAY = "day"
    MONTH = "month"
    GRANT = "grant"
    """From one date to another, once."""


@dataclass(frozen=True)
class Allocation:
    """Seconds for an account or a user, on one device or all; an empty name means all."""

    number: int
    account: str
    user: str
    device: str
    period: AllocationPeriod
    seconds: float
    start: float = 0.0
    """When a grant begins and ends; a period that repeats has no end."""
    end: float = FOREVER
    reason: str = ""

    @cached_property
    def owner(self) -> tuple[str, str, str]:
        """Whom it is for, and where: the account, the user and the device."""
        return self.account, self.user, self.device

    def covers(self, caller: Caller, device: str | None = None) -> bool:
        """Whether it counts what a caller uses, on a device or on any."""
        return (
            self.account in ("", caller.account)
            and self.user in ("", caller.user)
            and (device is None or self.device in ("", device))
        )

    def span(self, now: float) -> tuple[float, float]:
        """The begin and the end of its present period, which are UTC midnights for all but grants.

        A grant's are its own, whether it is in force or not.
        """
        if self.period is AllocationPeriod.DAY:
            return now // DAY * DAY, (now // DAY + 1) * DAY
        if self.period is AllocationPeriod.MONTH:
            first = datetime.fromtimestamp(now, UTC).replace(
                day=1, hour=0, minute=0, second=0, microsecond=0
            )
            after = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
            return first.timestamp(), after.timestamp()
        return self.start, self.end

    def in_force(self, now: float) -> bool:
        """Whether its seconds may be used now."""
        begin, end = self.span(now)
        return begin <= now < end

    @property
    def whose(self) -> str:
        """Whom it is for, in words."""
        names = {"account": self.account, "user": self.user}
        return " and the ".join(f"{kind} {name}" for kind, name in names.items() if name)

    def __str__(self) -> str:
        where = f" on {self.device}" if self.device else ""
        when = "of its grant" if self.period is AllocationPeriod.GRANT else f"of this {self.period}"
        return f"{self.seconds:g} QPU seconds {when}{where}"


COLUMNS = "number, account, user, device, period, seconds, start, stop, reason"
ADD = (
    "INSERT INTO allocations (account, user, device, period, seconds, start, stop, reason)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
)
USED = """
    SELECT sum(seconds - CASE WHEN began < :begin THEN :begin - began ELSE 0.0 END
      - CASE WHEN ended > :end THEN ended - :end ELSE 0.0 END) AS used
    FROM occupations WHERE ended > :begin AND began < :end
      AND (:account = '' OR account = :account) AND (:user = '' OR user = :user)
      AND (:device = '' OR device = :device) AND cause = ''"""
"""What was used of an allocation in a period; what the site pays for has a cause."""


def _all(db: Database) -> list[Allocation]:
    rows = db.execute(f"SELECT {COLUMNS} FROM allocations ORDER BY number")
    return [
        Allocation(number, account, user, device, AllocationPeriod(period), *rest)
        for number, account, user, device, period, *rest in map(tuple, rows)
    ]


def _used(each: Allocation, now: float) -> Any:
    begin, end = each.span(now)
    names = dict(zip(("account", "user", "device"), each.owner, strict=True))
    values = {"begin": begin, "end": end, **names}
    return lambda db: db.execute(USED, values).fetchone()["used"] or 0.0


@dataclass
class Balance:
    """What was used of an allocation in the period that began then, and what is reserved."""

    begin: float
    used: float
    reserved: float = 0.0


@dataclass(frozen=True)
class Reservation:
    """What an accepted task holds of the allocations that cover it."""

    seconds: float
    counted: float
    """What the task had used before, which is counted already."""
    of: tuple[Allocation, ...]


NO_RESERVATION = Reservation(0.0, 0.0, ())


class AllocationBook:
    """All allocations, with what is used and reserved of each."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._store = store
        self.balances: dict[Allocation, Balance] = {}
        """Every allocation, with its balance; while there are none, no task needs to ask."""
        self._reservations: dict[str, Reservation] = {}
        self._known: dict[tuple[str, str, str], tuple[Allocation, ...]] = {}

    def restore(self) -> None:
        """Read the allocations and what was used of them from the store."""
        now = self._world.now()
        for each in self._store.read(_all):
            self.balances[each] = Balance(each.span(now)[0], self._store.read(_used(each, now)))

    def reserve(self, task: ServiceTask, *, accepted: bool = False) -> None:
        """Reserve what a task should take, or refuse it, unless it was accepted before."""
        found = tuple(self._limiting(self._covering(task.caller, task.device)))
        if not found:
            return
        session = self._reservations.get(task.session or "", NO_RESERVATION)
        lent = min(session.seconds, task.seconds)  # its session has reserved these seconds
        if not accepted:
            self._check(task, found, dict.fromkeys(session.of, lent))
        if task.session is not None and lent:
            self._reservations[task.session] = replace(session, seconds=session.seconds - lent)
        for each in session.of:
            if each in self.balances:
                self._balance(each).reserved -= lent
        self._reservations[task.id] = Reservation(task.seconds, task.used, found)
        for each in found:
            self._balance(each).reserved += task.seconds

    def settle(self, task: ServiceTask) -> None:
        """Replace what a task reserved by what it used; 0 releases all of it."""
        held = self._reservations.pop(task.id, NO_RESERVATION)
        now = self._world.now()
        for each in self._covering(task.caller, task.device):
            balance = self._balance(each)
            if each in held.of:
                balance.reserved = max(0.0, balance.reserved - held.seconds)
            if each.in_force(now):  # a task that began in the period before is split
                balance.used += min(task.used - held.counted, now - balance.begin)

    def seconds_left(self, caller: Caller, device: str) -> float:
        """Maximum seconds that a new task may take."""
        found = self._covering(caller, device)
        return min((self._left(each) for each in self._limiting(found)), default=float("inf"))

    def left(self, caller: Caller, device: str | None = None) -> list[dict[str, Any]]:
        """What is left of the allocations that cover a caller, in the format of clients."""
        covering = [each for each in self.balances if each.covers(caller, device)]
        return [self.described(each) for each in self._limiting(covering)]

    def why_nothing_left(self, caller: Caller, devices: Iterable[str]) -> str | None:
        """Why a caller can use none of these devices, as a sentence; None if it can."""
        reasons = [self._why_not(caller, device) for device in devices]
        return reasons[0] if reasons and all(reasons) else None

    def all(self) -> list[dict[str, Any]]:
        """All allocations, with what is left of each."""
        return [self.described(each) for each in self.balances]

    def of_accounts(self) -> set[str]:
        """The accounts that have allocations."""
        return {each.account for each in self.balances if each.account and not each.user}

    async def add(self, wanted: Allocation) -> Allocation:
        """Add an allocation, and number it; it counts what was used of its period before."""
        self._check_new(wanted)
        row = (*wanted.owner, str(wanted.period), wanted.seconds, wanted.start, wanted.end)
        values = (*row, wanted.reason)
        number = await self._store.write(lambda db: db.execute(ADD, values).fetchone()["number"])
        made, now = replace(wanted, number=number), self._world.now()
        used = await self._store.look(_used(made, now))
        self._known.clear()
        self.balances[made] = Balance(made.span(now)[0], used)
        return made

    async def remove(self, number: int) -> Allocation | None:
        """Remove an allocation, which no longer limits anybody; None if there is none."""
        found = next((each for each in self.balances if each.number == number), None)
        words = "DELETE FROM allocations WHERE number = ?"
        await self._store.write(lambda db: db.execute(words, (number,)))
        if found is not None:
            self.balances.pop(found, None)
            self._known.clear()
        return found

    def described(self, each: Allocation) -> dict[str, Any]:
        """Describe an allocation, with what is left of it, in the format of clients."""
        now, balance = self._world.now(), self._balance(each)
        begin, end = each.span(now)
        return {
            "number": each.number,
            "account": each.account or None,
            "user": each.user or None,
            "device": each.device or None,
            "period": str(each.period),
            "since": begin,
            "until": end,
            "seconds": each.seconds,
            "used": balance.used,
            "reserved": balance.reserved,
            "left": self._left(each),
            "reason": each.reason,
        }

    def _covering(self, caller: Caller, device: str) -> tuple[Allocation, ...]:
        """The allocations that count what a caller uses on a device; cached."""
        key = caller.user, caller.account, device
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = tuple(e for e in self.balances if e.covers(caller, device))
        return self._known[key]

    def _limiting(self, found: Iterable[Allocation]) -> Iterator[Allocation]:
        """Those that limit now: of grants for the same, the one in force, or else the last."""
        now = self._world.now()
        grants: defaultdict[tuple[str, str, str], list[Allocation]] = defaultdict(list)
        for each in found:
            if each.period is AllocationPeriod.GRANT:
                grants[each.owner].append(each)
            else:
                yield each
        for same in grants.values():
            begun = [each for each in same if each.start <= now]
            yield max(begun, key=lambda each: each.start) if begun else same[0]

    def _left(self, each: Allocation) -> float:
        balance = self._balance(each)
        if not each.in_force(self._world.now()):
            return 0.0
        return max(0.0, each.seconds - balance.used - balance.reserved)

    def _balance(self, each: Allocation) -> Balance:
        """The balance of the present period; in a new one, only what is reserved remains."""
        balance, begin = self.balances[each], each.span(self._world.now())[0]
        if balance.begin != begin:
            balance.begin, balance.used = begin, 0.0
        return balance

    def _check(
        self, task: ServiceTask, found: tuple[Allocation, ...], lent: dict[Allocation, float]
    ) -> None:
        for each in found:
            left = self._left(each) + lent.get(each, 0.0)
            if task.seconds > left + ROUNDING or left <= 0.0:
                raise NothingLeft(f"{self._sentence(each)}; the task should take {task.seconds:g}")

    def _why_not(self, caller: Caller, device: str) -> str | None:
        found = self._limiting(self._covering(caller, device))
        return next((self._sentence(each) for each in found if self._left(each) <= 0.0), None)

    def _sentence(self, each: Allocation) -> str:
        """What is left of an allocation, and when there will be more."""
        now, (begin, end) = self._world.now(), each.span(self._world.now())
        if now < begin:
            return f"the {each.whose} may use its {each} from {_date(begin)} on"
        if now >= end:
            return f"the {each.whose} had {each}, which ended at {_date(end)}; ask the operator"
        reserved = self._balance(each).reserved
        waiting = f" ({reserved:g} are reserved by waiting tasks)" if reserved else ""
        more = "ask the operator for more"
        if each.period is not AllocationPeriod.GRANT:
            more = f"the next {each.period} begins at {_date(end)}"
        return f"the {each.whose} has {self._left(each):g} left of {each}{waiting}; {more}"

    def _check_new(self, wanted: Allocation) -> None:
        if not wanted.account and not wanted.user:
            raise UsageError("an allocation is for an account or a user: name one, or both")
        if not wanted.start < wanted.end:
            raise UsageError("a grant has to end after its start")
        dated = (wanted.start, wanted.end) != (0.0, FOREVER)
        if dated and wanted.period is not AllocationPeriod.GRANT:
            raise UsageError(f"only a grant has dates: a {wanted.period} has its own")
        for each in self.balances:
            same = (each.owner, each.period) == (wanted.owner, wanted.period)
            if same and each.start < wanted.end and wanted.start < each.end:
                raise Conflict(
                    f"the {each.whose} has {each} already; remove allocation {each.number} first"
                )


def as_quota(described: dict[str, Any]) -> dict[str, Any]:
    """An allocation beside the quotas of a user and an account: what is used and left of it."""
    names = [each for each in (described["account"], described["user"]) if each]
    return {
        "of": "account" if described["account"] else "user",
        "name": " ".join(names),
        "device": described["device"],
        "period": described["period"],
        "tasks": None,
        "tasks_left": None,
        "qpu_seconds": described["used"] + described["reserved"],
        "qpu_seconds_left": described["left"],
        "until": described["until"],
    }


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
