"""Usage: seconds of the devices by user, account, job and device, from the rows of the tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

KEYS = ("user", "account", "job", "device")


def usage(
    by: Sequence[str], user: str | None, since: float | None, until: float | None, now: float
) -> Any:
    """Usage in rows; a running task counts with the time it has run so far."""
    assert all(key in KEYS for key in by)
    names = ", ".join(by)
    words = f"""
        SELECT {names}, count(*) AS tasks, sum(ended IS NULL) AS running,
          sum(CASE WHEN ended IS NULL THEN max(0.0, :now - started) ELSE used END) AS qpu_seconds,
          min(submitted) AS first, max(coalesce(ended, :now)) AS last
        FROM tasks
        WHERE (started IS NOT NULL OR used > 0) AND coalesce(ended, :now) >= :since
          AND submitted < :until AND (:user IS NULL OR user = :user)
        GROUP BY {names} ORDER BY qpu_seconds DESC"""
    terms = {"now": now, "since": since or 0.0, "until": until or now + 1.0, "user": user}

    def action(store: sqlite3.Connection) -> list[dict[str, Any]]:
        return [dict(row) for row in store.execute(words, terms)]

    return action
