"""Usage: seconds of the devices by user, account, job and device, from the rows of the tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

KEYS = ("user", "account", "job", "device")


def usage(
    by: Sequence[str], user: str | None, since: float | None, until: float | None, now: float
) -> Any:
    """Usage of a period in rows; a running task counts with the time it has run so far.

    A task occupied the device up to its end. Of two adjacent periods, each gets the seconds that
    lie in it, and the one in which the task ended gets the task.
    """
    assert all(key in KEYS for key in by)
    names = ", ".join(by)
    words = f"""
        SELECT {names},
          sum(ended IS NULL OR ended >= :since AND ended < :until) AS tasks,
          sum(ended IS NULL) AS running,
          sum(max(0.0, used - max(0.0, :since - (last - used)) - max(0.0, last - :until)))
            AS qpu_seconds,
          min(submitted) AS first, max(last) AS last
        FROM (
          SELECT user, account, job, device, submitted, ended,
            coalesce(ended, :now) AS last,
            CASE WHEN ended IS NULL THEN used + max(0.0, :now - started) ELSE used END AS used
          FROM tasks WHERE ended >= :since OR started IS NOT NULL AND ended IS NULL)
        WHERE used > 0 AND last - used < :until AND (:user IS NULL OR user = :user)
        GROUP BY {names} ORDER BY qpu_seconds DESC"""
    terms: dict[str, Any] = {"now": now, "since": since or 0.0, "user": user}
    terms["until"] = now + 1.0 if until is None else until

    def action(store: sqlite3.Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in store.execute(words, terms)]

    return action
