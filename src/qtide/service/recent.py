"""What a service that starts has to know of the time before: recent usage, and jobs at work."""

from __future__ import annotations

from qtide.service import records
from qtide.service.configuration import DAY
from qtide.service.policies import Owner, Shares
from qtide.service.quotas import Meter
from qtide.service.store import Store
from qtide.service.task import Caller


def remember(store: Store, shares: Shares, meter: Meter, half_life: float, now: float) -> None:
    """Tell shares and quotas what was used lately, and which jobs were at work."""
    today = meter.next_day(now) - DAY
    # usage of the same hundredth of a half-life counts as one; no such stretch spans two days
    at_once = min(half_life / 100, DAY / 24)
    for row in store.read(records.used_since(min(today, now - 10 * half_life), at_once)):
        caller = Caller(row["user"], row["account"])
        shares.charge(Owner.of(caller), row["used"], row["ended"])
        if row["ended"] >= today:
            meter.note(caller, row["used"], now)
    for row in store.read(records.jobs_since(now - DAY)):
        shares.note_job(row["user"], row["job"], row["began"])
