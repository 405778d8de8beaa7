"""Waits: how long a request for nodes should stand in a cluster's queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qtide.forecasts.recent import Recent

RECENT = 16
"""How many past waits count for the expected one."""


@dataclass(eq=False)
class Wait:
    """A request that stands in the queue."""

    since: float
    announced: float = 0.0
    """How long it should stand there in all, if the cluster's scheduler says so."""


class Standing:
    """A block in which a request stands in the queue (a generator would take twice as long)."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def __enter__(self) -> Wait:
        self._wait = self._waits.begin()
        return self._wait

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._waits.end(self._wait, granted=kind is None)


class Waits:
    """Learns from requests that are granted, and looks at those that still wait."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._standing: dict[Wait, None] = {}  # the oldest first
        self._recent = Recent(RECENT)

    def standing(self) -> Standing:
        """A request stands in the queue; if it leaves without an error, it was granted."""
        return Standing(self)

    def begin(self) -> Wait:
        """A request begins to stand in the queue."""
        wait = Wait(self._now())
        self._standing[wait] = None
        return wait

    def end(self, wait: Wait, *, granted: bool) -> None:
        """It stands there no longer."""
        del self._standing[wait]
        if granted:
            self._recent.add(self._now() - wait.since)

    def expected(self, *, announced: bool = False) -> float:
        """As long as those that wait now have waited, or as the last ones did.

        With `announced`, the scheduler's own word counts as well.
        """
        now = self._now()
        waited = [
            max(now - each.since, each.announced if announced else 0.0) for each in self._standing
        ]
        return max([*waited, self._recent.mean()])

    def seen(self) -> list[float]:
        """The last waits, and the present one that is longer than all of them were."""
        recent = self._recent.values()
        if self._standing:
            longest = self._now() - next(iter(self._standing)).since
            if longest > max(recent, default=0.0):
                recent.append(longest)
        return recent

    def forget(self) -> None:
        """Let the waits of earlier jobs no longer count."""
        self._recent.clear()
