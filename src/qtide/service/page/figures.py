"""The figures behind the page: who used a device when, why it idled, whose turn it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from qtide.service import queries
from qtide.service.device.served_device import ServedDevice
from qtide.service.limits import in_slices
from qtide.service.monitoring import (
    CAUSES,
    FINEST,
    DeviceHistory,
    Moments,
    Period,
    moments,
    resolution,
)
from qtide.service.page.feed import task_row
from qtide.service.policies.policy import ShareOwner
from qtide.service.service import Service
from qtide.service.store import Database
from qtide.service.task import Caller, ServiceTask, sees

BINS = 150
"""Columns of a timeline."""
OTHERS = "others"
"""The owner of tasks whose account a user may not see."""
UNKNOWN = "unknown"
"""The cause of idleness while the service was off."""
DAY = 86_400.0
RECENT_TASKS, RECENT_DAYS = 20, 31
SUMS_STAY = 1.0
"""Seconds for which sums over all accounts, or all tasks, stay."""
LATE = 2.0 * FINEST
"""Seconds that the newest row of the history may be late."""


class QueuePlace(NamedTuple):
    """A task's place in the queue of its device, as of a moment."""

    task: ServiceTask
    position: int | None
    reason: str | None
    start: float | None


class Figures:
    """Computes figures for many pages at once: what several ask for is computed once."""

    def __init__(self, service: Service, history: DeviceHistory) -> None:
        self._service = service
        self._history = history
        self._known: dict[tuple[Any, ...], tuple[float, Any]] = {}

    async def timeline(self, caller: Caller, device: ServedDevice, span: float) -> dict[str, Any]:
        """What a device did in the last `span` seconds, in columns, by owner and cause of idleness.

        Users see their own account and the sum of all others.
        """
        step = span / BINS
        found: dict[str, Any] = await self._recent(
            ("timeline", device.name, span),
            min(10.0, max(1.0, step / 2)),
            lambda: self._columns(device, step),
        )
        if caller.operator:
            return found
        mine = ShareOwner.of(caller).account
        return found | {"columns": [_masked(each, mine) for each in found["columns"]]}

    async def summary(self, device: ServedDevice, span: float) -> dict[str, Any]:
        """All figures of a device's last `span` seconds."""

        async def made() -> dict[str, Any]:
            now = self._service.now()
            step = resolution(now - span, now)
            total = Period()
            for _, period in await self._history.read(device.name, now - span, now + 1, step):
                total.add(period)
            return total.as_dict() | {"device": device.name, "span": span}

        found: dict[str, Any] = await self._recent(("summary", device.name, span), 2.0, made)
        return found

    async def levels(self, days: float) -> dict[str, Any]:
        """The service levels of each device over some days: what a centre can publish."""

        async def made() -> dict[str, Any]:
            now = self._service.now()
            since = now - days * DAY
            step = resolution(since, now, 10_000)
            names = list(self._service.devices)

            def summed(db: Database) -> list[dict[str, Any]]:  # beside the event loop
                found = moments(db, step, since, now + 1)
                return [_level(name, found, step, since, now) for name in names]

            levels = await self._service.store.look(summed)
            return {"since": since, "until": now, "devices": levels}

        levels: dict[str, Any] = await self._recent(("levels", days), 10.0, made)
        return levels

    async def queue(
        self, caller: Caller, device: ServedDevice, offset: int, limit: int, *, everybody: bool
    ) -> dict[str, Any]:
        """A part of a device's queue in the order of the policy; users see their own tasks."""
        many = device.waiting > 200
        line: list[QueuePlace] = await self._recent(
            ("queue", device.name), 2.0 if many else 0.2, lambda: self._line(device)
        )
        shown = [each for each in line if not each.task.over]
        if not (everybody and caller.operator):
            shown = [each for each in shown if each.task.caller.user == caller.user]
        rows = [_queue_row(each) for each in shown[offset : offset + limit]]
        return {"total": len(shown), "offset": offset, "tasks": rows}

    async def recent(
        self, caller: Caller, device: ServedDevice, *, everybody: bool
    ) -> list[dict[str, Any]]:
        """The tasks of a device that run or ended last, newest first."""
        user = None if everybody and caller.operator else caller.user
        since = self._service.now() - RECENT_DAYS * DAY
        found = await self._service.store.look(
            queries.ended_last(device.name, user, since, RECENT_TASKS)
        )
        running = [task for task in device.on_device if user in (None, task.caller.user)]
        return [task_row(task) for task in (*running, *found)]

    def _known_accounts(self, used: list[dict[str, Any]]) -> list[str]:
        """The accounts with recent usage, an allocation, or a place in the configuration."""
        configuration = self._service.configuration
        named = {*configuration.fair.shares, *configuration.quotas.accounts}
        named |= {name for each in configuration.devices.values() for name in each.accounts or ()}
        named |= {row["account"] for row in used}
        return sorted(named | self._service.allocations.of_accounts())

    async def shares(self, caller: Caller) -> dict[str, Any]:
        """Decayed usage, share and rank of the caller's account; operators see all accounts."""
        own = ShareOwner.of(caller).account
        rows: list[dict[str, Any]] = await self._recent(("shares",), SUMS_STAY, self._ranked)
        mine = next((row for row in rows if row["account"] == own), None)
        if mine is None:  # it has used nothing, so it goes first
            weight = self._service.shares.weight(own)
            mine = {"account": own, "used": 0.0, "weight": weight, "rank": 1}
            rows = [mine, *(row | {"rank": row["rank"] + 1} for row in rows)]
        half_life = self._service.configuration.fair.half_life
        return {
            "mine": mine,
            "of": len(rows),
            "half_life": half_life,
            "accounts": rows if caller.operator else [mine],
            "known": self._known_accounts(rows) if caller.operator else [mine["account"]],
            "quotas": self._service.quotas_left(caller),
        }

    async def _ranked(self) -> list[dict[str, Any]]:
        """All accounts that have used a device, by what they used for their share."""
        now, shares = self._service.now(), self._service.shares
        rows: list[dict[str, Any]] = [
            {"account": each, "used": shares.used(each, now), "weight": shares.weight(each)}
            for each in {each.account for each in shares.owners()}
        ]
        rows.sort(key=lambda row: (row["used"] / row["weight"], row["account"]))
        return [row | {"rank": rank} for rank, row in enumerate(rows, 1)]

    async def slots(self) -> dict[str, int | None]:
        """Virtual QPUs: how many there are, those that Slurm granted, and those in use now."""
        slurm = self._service.configuration.slurm is not None
        granted = len(self._service.register.holders()) if slurm else None
        used: int = await self._recent(("slots",), SUMS_STAY, self._jobs)
        return {"all": self._service.slots, "granted": granted, "in_use": used}

    async def _jobs(self) -> int:
        """Number of jobs with unfinished tasks."""
        live = (task for each in self._service.devices.values() for task in each.line)
        return len({(each.caller.user, each.caller.job) for each in live if each.caller.job})

    async def _recent(
        self, key: tuple[Any, ...], fresh: float, make: Callable[[], Awaitable[Any]]
    ) -> Any:
        now = self._service.now()
        made, value = self._known.get(key, (-math.inf, None))
        if now - made < fresh:
            return value
        value = await make()
        self._known = {k: v for k, v in self._known.items() if now - v[0] < 60.0}
        self._known[key] = self._service.now(), value
        return value

    async def _line(self, device: ServedDevice) -> list[QueuePlace]:
        """All unfinished tasks of a device in order; a long queue takes several slices."""

        def place(task: ServiceTask) -> QueuePlace:
            standing = self._service.standing(task)
            if standing is None:
                return QueuePlace(task, None, None, None)
            return QueuePlace(task, standing.position, standing.reason, standing.start)

        found = await in_slices(self._service.world, self._service.line(device), place)
        return sorted(found, key=lambda each: math.inf if each.position is None else each.position)

    async def _columns(self, device: ServedDevice, step: float) -> dict[str, Any]:
        now = self._service.now()
        since = now - BINS * step
        fine = resolution(since, now)
        name = device.name
        busy, known = await self._service.store.look(
            lambda db: (
                _used(db, name, since, now, step),
                moments(db, fine, since - fine, now + 1, name),
            )
        )
        for task in device.on_device:
            if task.started is not None:
                owner = ShareOwner.of(task.caller).account
                _spread(busy, owner, task.started, now, since, step)
        periods = {at: period for (_, at), period in known.items()}
        columns = [
            column(busy[number], periods, since + number * step, step, fine)
            for number in range(BINS)
        ]
        return {"device": name, "since": since, "step": step, "columns": columns}


Busy = list[defaultdict[str, float]]


def _used(db: Database, device: str, since: float, until: float, step: float) -> Busy:
    """Seconds of a device by column and owner, from the tasks that ended."""
    busy: Busy = [defaultdict(float) for _ in range(BINS)]
    terms = {"device": device, "since": since, "until": until, "step": step}
    where = "FROM tasks WHERE ended > :since AND ended <= :until AND device = :device AND used > 0"
    owner = "CASE account WHEN '' THEN user ELSE account END AS owner"
    short = (
        f"SELECT {owner}, cast((ended - used / 2 - :since) / :step AS INTEGER) AS bin,"
        f" sum(used) AS used {where} AND used <= :step GROUP BY 1, 2"
    )
    for row in db.execute(short, terms):
        if 0 <= row["bin"] < BINS:
            busy[row["bin"]][row["owner"]] += row["used"]
    long = f"SELECT {owner}, ended, used {where} AND used > :step"
    for row in db.execute(long, terms):
        _spread(busy, row["owner"], row["ended"] - row["used"], row["ended"], since, step)
    return busy


def _spread(busy: Busy, owner: str, start: float, end: float, since: float, step: float) -> None:
    """Add a span to the columns that it covers."""
    first = max(0, math.floor((start - since) / step))
    for number in range(first, min(BINS, math.ceil((end - since) / step))):
        left = since + number * step
        busy[number][owner] += max(0.0, min(end, left + step) - max(start, left))


def column(
    busy: dict[str, float], periods: dict[int, Period], at: float, step: float, fine: int
) -> dict[str, dict[str, float]]:
    """A column: seconds by owner, and the rest by cause of idleness."""
    total = sum(busy.values())
    scale = min(1.0, step / total) if total > 0 else 1.0
    causes: defaultdict[str, float] = defaultdict(float)
    first, last = math.floor(at / fine) * fine, math.floor((at + step) / fine) * fine
    for moment in range(first, last + 1, fine):
        if moment in periods:
            weight = max(0.0, min(at + step, moment + fine) - max(at, moment)) / fine
            for cause, seconds in periods[moment].seconds.items():
                if cause not in ("busy", "wanted"):
                    causes[cause] += weight * seconds
    idle = max(0.0, step - total)
    known = sum(causes.values())
    if idle < 1e-6:
        shares = {}
    elif known > 1e-9:
        shares = {cause: round(idle * each / known, 4) for cause, each in causes.items() if each}
    else:
        shares = {_latest_cause(periods, first, last, fine): idle}
    return {"busy": {name: round(scale * each, 4) for name, each in busy.items()}, "idle": shares}


def _latest_cause(periods: dict[int, Period], first: int, last: int, fine: int) -> str:
    """Why the device was idle a moment ago; the newest period is not written yet."""
    near = [at for at in range(first - 2 * fine, last + fine + 1, fine) if at in periods]
    if not near:
        return UNKNOWN
    seconds = periods[near[-1]].seconds
    causes = {cause: each for cause, each in seconds.items() if cause not in ("busy", "wanted")}
    return max(causes, key=lambda cause: causes[cause], default="nobody")


def _masked(column: dict[str, dict[str, float]], mine: str) -> dict[str, dict[str, float]]:
    others = sum(each for name, each in column["busy"].items() if name != mine)
    busy = {mine: column["busy"][mine]} if mine in column["busy"] else {}
    return {"busy": busy | ({OTHERS: others} if others else {}), "idle": column["idle"]}


def _level(name: str, found: Moments, step: int, since: float, until: float) -> dict[str, Any]:
    total = Period()
    mine: dict[float, Period] = {at: each for (device, at), each in found.items() if device == name}
    for period in mine.values():
        total.add(period)
    recorded = {at: sum(each.seconds[cause] for cause in CAUSES) for at, each in mine.items()}
    first = min(mine, default=until)
    # the service may have begun within the first period, and writes the last seconds later
    since = max(since, min(first + step, until) - recorded.get(first, 0.0))
    observed = max(0.0, until - since)
    off = max(0.0, observed - sum(recorded.values()) - LATE)
    planned = total.seconds["maintenance"] + total.seconds["calibration"]
    could = observed - planned
    down = total.seconds["down"] + off
    return total.as_dict() | {
        "device": name,
        "observed": observed,
        "off": off,
        "availability": 1.0 - down / could if could > 0 else None,
        "occupancy": total.seconds["busy"] / observed if observed else None,
        "promises_kept": (
            total.tasks["kept"] / total.tasks["promised"] if total.tasks["promised"] else None
        ),
    }


def _queue_row(place: QueuePlace) -> dict[str, Any]:
    standing = {"position": place.position, "reason": place.reason, "expected_start": place.start}
    return task_row(place.task) | standing


def story(service: Service, caller: Caller, task: ServiceTask) -> list[dict[str, Any]]:
    """What happened to a task, from its submission to its answer, each with its time."""
    assert sees(caller, task)
    found: list[tuple[float, str]] = [(task.submitted, "submitted, and stored durably")]
    if task.latest is not None:
        promise = f"promised to start within {task.max_wait:g} s"
        found.append((task.submitted, promise))
    for row in service.store.read(lambda db: _attempts(db, task.id)):
        ended = f"left {task.device} after {row['seconds']:.3f} s"
        why = f": {row['cause']}" if row["cause"] else ""
        found += [(row["began"], f"began on {task.device}"), (row["ended"], ended + why)]
    if task.started is not None and not any(text.startswith("began") for _, text in found):
        found.append((task.started, f"began on {task.device}, attempt {task.attempts}"))
    if task.ended is not None:
        why = f": {task.error}" if task.error else ""
        found.append((task.ended, f"{task.state}{why}; charged {task.used:.3f} s"))
    return [{"at": at, "what": what} for at, what in sorted(found, key=lambda each: each[0])]


def _attempts(db: Database, task: str) -> list[Any]:
    """The device's time that was charged to a task, attempt by attempt."""
    words = "SELECT began, seconds, ended, cause FROM occupations WHERE task = ? ORDER BY began"
    return db.execute(words, (task,)).fetchall()
