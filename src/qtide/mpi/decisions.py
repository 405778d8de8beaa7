"""The root's decisions about the size of a malleable job, whatever language its ranks speak.

Only the root of a Python program and the helper of a compiled one import this module; its imports
would slow the start of newcomers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from qtide.mpi.broker import Growth, RootRecord
from qtide.mpi.sizing import Sizes

Decision = dict[str, Any]
"""`{"new": members}` lets newcomers join, `{"shrink": size}` lets members leave; or `{}`."""


class Decisions(Protocol):
    """Who decides about the size of a job."""

    size: int
    policy: Callable[[Any], int | None] | None

    @property
    def lead(self) -> float:
        """Seconds that the last growth took, from the request until its nodes had joined."""

    @property
    def pending(self) -> bool:
        """Whether a requested growth is still outstanding."""

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""

    def others_waiting(self) -> int:
        """How many other jobs wait for nodes of the cluster."""

    def grow(
        self, to: int | None, least: int | None, wait: float, watch: Callable[[], None]
    ) -> Decision:
        """Request nodes, wait for them, and decide which join; `watch` may end the wait."""

    def consult(self, job: Any) -> Decision:
        """Consult the policy about the job and decide what to do."""

    def cancel(self) -> None:
        """Cancel a pending growth."""

    def changed(
        self,
        new: Collection[int],
        left: Collection[int],
        parts: Mapping[str, float],
        total: float,
    ) -> None:
        """Record a change that was made, with the seconds that it and its parts took."""

    def lost(self, members: Collection[int]) -> None:
        """Record the loss of members."""

    def close(self, error: BaseException | None) -> None:
        """End the job."""


class RootDecisions:
    """Requests nodes, consults the policy, and decides who joins and who leaves."""

    def __init__(
        self,
        record: RootRecord,
        sizes: Sizes,
        policy: Callable[[Any], int | None] | None = None,
        cool_down: float = 1.0,
    ) -> None:
        self.record = record
        self.sizes = sizes
        self.policy = policy
        self.size = 1
        self.lead = 1.0
        """Seconds that the last growth took, from the request until its nodes had joined."""
        self._cool_down = cool_down
        self._changed = -float("inf")
        self._growth: Growth | None = None

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.record.checkpoints

    def close(self, error: BaseException | None) -> None:
        """End the job and release its nodes."""
        self.record.close(error)

    @property
    def pending(self) -> bool:
        """Whether a requested growth is still outstanding."""
        return self._growth is not None and not self._growth.finished

    def others_waiting(self) -> int:
        """How many other jobs wait for nodes of the cluster."""
        return self.record.kind.others_waiting()

    def grow(
        self, to: int | None, least: int | None, wait: float, watch: Callable[[], None]
    ) -> Decision:
        """Request nodes, wait for them, and decide which join; `watch` may end the wait."""
        self._request(min(to or self.sizes.preferred, self.sizes.most))
        if self._growth is None:
            return {}
        self._growth.wait(wait, watch)
        enough = self.size + len(self._growth.ready) >= (least or self.size + 1)
        return self._take_in() if enough else {}

    def consult(self, job: Any) -> Decision:
        """Consult the policy about the job and decide what to do."""
        calm = time.monotonic() - self._changed > self._cool_down
        goal = self.policy(job) if self.policy and calm else None
        if goal is not None:
            goal = min(max(goal, self.sizes.least), self.sizes.most)
            if goal < self.size:
                return {"shrink": goal}
            if goal == self.size:
                self.cancel()
            self._request(goal)
        complete = self._growth is not None and not self._growth.pending
        return self._take_in() if complete else {}

    def cancel(self) -> None:
        """Cancel a pending growth."""
        if self._growth is not None:
            self.record.broker.cancel(self._growth)
        self._growth = None

    def changed(
        self,
        new: Collection[int],
        left: Collection[int],
        parts: Mapping[str, float],
        total: float,
    ) -> None:
        """Record a change that was made, with the seconds that it and its parts took."""
        before, spent = self.size, dict(parts)
        self.size += len(new) - len(left)
        self._changed = time.monotonic()
        if new and self._growth is not None:
            joined = [each for each in self._growth.newcomers if each.identity in new]
            for each in joined:
                each.member = True
            spent |= self.record.joined(joined)
            self.lead = sum(spent.values())
        self.record.left(left)
        self.record.changed(before, self.size, spent | {"total": total})

    def lost(self, members: Collection[int]) -> None:
        """Record the loss of members."""
        self.cancel()
        self.size -= len(members)
        self._changed = time.monotonic()
        self.record.lost(members)

    def _request(self, goal: int) -> None:
        if self._growth is not None and self._growth.finished:
            self._growth = None
        if self._growth is None and goal > self.size:
            self._growth = self.record.broker.grow(goal - self.size)

    def _take_in(self) -> Decision:
        ready = self._growth.ready if self._growth is not None else []
        return {"new": [each.identity for each in ready]} if ready else {}
