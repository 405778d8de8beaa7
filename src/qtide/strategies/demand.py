"""Demand: which jobs of a site stand still for lack of nodes, and how many nodes they share.

A node that idles for one job while another stands still costs the other its time. Only jobs of the
same driver know of each other; what strangers wait for shows in how long requests take, and a node
that is given back among many strangers is most likely theirs next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Pool(Protocol):
    """The node pool of a job."""

    @property
    def size(self) -> int:
        """How many nodes it holds."""


class Demand:
    """Counts the jobs that stand still, and tells whoever keeps a node."""

    def __init__(self) -> None:
        self._waiting: dict[Pool, int] = {}
        self._watchers: dict[Pool, Callable[[], None]] = {}

    def watch(self, pool: Pool, changed: Callable[[], None] = lambda: None) -> None:
        """Count a job's nodes, and call `changed` when another one begins to stand still."""
        self._watchers[pool] = changed

    def forget(self, pool: Pool) -> None:
        """The job is over."""
        self._watchers.pop(pool, None)

    def share(self, pool: Pool, size: int) -> float:
        """How likely a node of a cluster goes to a job that stands still, if this one frees it.

        None does if no other job of ours stands still; otherwise as many as are ours anyway.
        """
        if all(each is pool for each in self._waiting):
            return 0.0
        return min(1.0, sum(each.size for each in self._watchers) / max(1, size))

    @contextmanager
    def standing_still(self, pool: Pool) -> Iterator[None]:
        """A job has no node and waits for one."""
        self._waiting[pool] = self._waiting.get(pool, 0) + 1
        if self._waiting[pool] == 1:
            for other, changed in list(self._watchers.items()):
                if other is not pool:
                    changed()
        try:
            yield
        finally:
            self._waiting[pool] -= 1
            if not self._waiting[pool]:
                del self._waiting[pool]
