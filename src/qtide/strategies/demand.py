"""Demand: which jobs of a site stand still for lack of nodes.

A node that idles for one job while another stands still costs the other its time. Only jobs of the
same driver know of each other; what strangers wait for shows in how long requests take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Demand:
    """Counts the jobs that stand still, and tells whoever keeps a node."""

    def __init__(self) -> None:
        self._waiting: dict[object, int] = {}
        self._watchers: dict[object, Callable[[], None]] = {}

    def watch(self, owner: object, changed: Callable[[], None]) -> None:
        """Call `changed` when a job begins to stand still."""
        self._watchers[owner] = changed

    def forget(self, owner: object) -> None:
        """The job is over."""
        self._watchers.pop(owner, None)

    def by_others(self, owner: object) -> bool:
        """Whether a job other than the owner's stands still."""
        return any(each is not owner for each in self._waiting)

    @contextmanager
    def standing_still(self, owner: object) -> Iterator[None]:
        """A job has no node and waits for one."""
        self._waiting[owner] = self._waiting.get(owner, 0) + 1
        if self._waiting[owner] == 1:
            for other, changed in list(self._watchers.items()):
                if other is not owner:
                    changed()
        try:
            yield
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
