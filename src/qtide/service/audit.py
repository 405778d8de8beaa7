"""The audit trail: who did what to the service, from where and why."""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from itertools import takewhile
from pathlib import Path
from typing import Any

ORIGIN: ContextVar[str] = ContextVar("origin", default="the service")
"""Where the present request comes from; the gate sets it."""
AUDIT = "audit.jsonl"


class AuditTrail:
    """Who did what to the service, from where and why: one JSON object per line, only appended.

    It never has a secret: tokens are named by the beginning of their digests.
    """

    MOST = 10 * 2**20
    """Bytes beyond which a file is closed and another one begun."""
    FILES = 50
    """Closed files to keep."""
    QUIET = 60.0
    """Seconds in which the same refusal of the same actor is recorded once."""

    OF_ONE_ACTOR = 20
    """Different refusals of one actor that are recorded within `QUIET` seconds."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        """None in a simulation, which records nothing."""
        self._refused: dict[tuple[str, str, str], float] = {}
        """When each refusal was recorded, oldest first."""
        self._refused_to: Counter[str] = Counter()

    def record(self, event: str, actor: str, reason: str = "", **more: Any) -> None:
        """Append a line; a full disk must not stop the service."""
        if self._folder is None:
            return
        words = {"time": round(time.time(), 3), "event": event, "actor": actor}
        words |= {"origin": ORIGIN.get(), "reason": reason} | more
        line = json.dumps(words, default=str) + "\n"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._folder / AUDIT, how, 0o600)
            try:
                os.write(file, line.encode())
                full = os.fstat(file).st_size > self.MOST
            finally:
                os.close(file)
            if full:
                self._rotate()
        except OSError as error:
            logging.getLogger(__name__).warning("not audited", extra={"why": str(error)})

    def refused(self, event: str, actor: str, reason: str) -> None:
        """Record a refusal; of an actor who repeats it, the first within `QUIET` seconds.

        Of each actor some are recorded in that time, so that nobody's keep those of others out.
        """
        key, now = (event, actor, reason), time.monotonic()
        for old in [
            *takewhile(lambda each: now - self._refused[each] >= self.QUIET, self._refused)
        ]:
            del self._refused[old]
            self._refused_to[old[1]] -= 1
        if key not in self._refused and self._refused_to[actor] < self.OF_ONE_ACTOR:
            self._refused[key] = now
            self._refused_to[actor] += 1
            self.record(event, actor, reason)
        self._refused_to += Counter()  # drops whoever has none any more

    def entries(self, most: int | None = None) -> Iterator[dict[str, Any]]:
        """The entries of the last `most` closed files and the open one, oldest first.

        A line that was cut off is skipped.
        """
        if self._folder is None:
            return
        closed = self._closed()
        for file in [*(closed if most is None else closed[-most:]), self._folder / AUDIT]:
            with suppress(FileNotFoundError), file.open() as lines:
                for line in lines:
                    with suppress(ValueError):
                        yield json.loads(line)

    def _closed(self) -> list[Path]:
        return sorted(self._folder.glob("audit-*.jsonl")) if self._folder is not None else []

    def _rotate(self) -> None:
        assert self._folder is not None
        closed = self._folder / f"audit-{time.time_ns()}.jsonl"
        (self._folder / AUDIT).rename(closed)
        for old in self._closed()[: -self.FILES]:
            old.unlink()
