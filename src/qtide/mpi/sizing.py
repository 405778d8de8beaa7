"""Policies: how many nodes a job should have now. The root consults its policy in `check()`.

A policy is a callable that takes the job and returns a number, or None to leave it unchanged.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

from qtide.core.errors import UsageError

Clock = Callable[[], float]


@dataclass(frozen=True)
class Sizes:
    """The minimum, preferred and maximum number of nodes of a job."""

    least: int
    preferred: int
    most: int

    def __post_init__(self) -> None:
        sizes = (self.least, self.preferred, self.most)
        whole = all(isinstance(each, Integral) for each in sizes)
        if not (whole and 1 <= self.least <= self.preferred <= self.most):
            raise UsageError(
                "a job needs whole numbers 1 <= least <= preferred <= most, not {!r}, {!r} and "
                "{!r}".format(*sizes)
            )


class Sized(Protocol):
    """What a policy may know about a job."""

    @property
    def size(self) -> int:
        """The current number of ranks."""

    @property
    def sizes(self) -> Sizes:
        """The minimum, preferred and maximum number of nodes."""

    @property
    def lead(self) -> float:
        """Seconds that a growth takes."""

    def others_waiting(self) -> int:
        """How many other jobs wait for nodes of the cluster."""


class ByPhase:
    """The preferred number of nodes in classical phases, the minimum in quantum ones."""

    def __init__(self) -> None:
        self.phase = "classical"

    def __call__(self, job: Sized) -> int:
        """Decide by the program's current phase."""
        return job.sizes.least if self.phase == "quantum" else job.sizes.preferred


class ByQueue:
    """The preferred number of nodes, but the minimum while others wait for nodes."""

    def __init__(self, pause: float = 5.0, clock: Clock = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock
        self._last = -float("inf")
        self._others = 0

    def __call__(self, job: Sized) -> int:
        """Decide by the queue, which is queried at most every `pause` seconds."""
        if self._clock() - self._last >= self._pause:
            self._last, self._others = self._clock(), job.others_waiting()
        return job.sizes.least if self._others else job.sizes.preferred


class ByEfficiency:
    """One more node as long as the last one paid off, judged by the time between checks."""

    def __init__(self, least: float = 0.5, samples: int = 3, clock: Clock = time.monotonic) -> None:
        self._least = least
        self._samples = samples
        self._clock = clock
        self._before: tuple[int, float] | None = None
        self._seen: defaultdict[int, list[float]] = defaultdict(list)

    def __call__(self, job: Sized) -> int | None:
        """Grow by one node, stay, or give one node back."""
        self._measure(job.size)
        if len(self._seen[job.size]) < self._samples:
            return None
        if job.size > job.sizes.least and self._gain(job.size) < self._least:
            return job.size - 1
        larger = job.size + 1
        if larger > job.sizes.most or (self._known(larger) and self._gain(larger) < self._least):
            return None
        return larger

    def _measure(self, size: int) -> None:
        now, before = self._clock(), self._before
        if before is not None and before[0] == size:
            self._seen[size].append(now - before[1])
        self._before = (size, now)

    def _known(self, size: int) -> bool:
        return len(self._seen[size]) >= self._samples

    def _gain(self, size: int) -> float:
        """The share of a full node that the last node contributed; 1 if not known yet."""
        if not self._known(size - 1):
            return 1.0
        faster = min(self._seen[size - 1]) / max(min(self._seen[size]), 1e-9)
        return faster * (size - 1) - (size - 1)


class ByQuantumEnd:
    """The minimum number of nodes during a quantum task; the others return just as it ends."""

    def __init__(self, remaining: Callable[[], float], margin: float = 0.2) -> None:
        self._remaining = remaining
        self._margin = margin

    def __call__(self, job: Sized) -> int:
        """Request nodes as early as the last growth took, plus a margin."""
        ahead = job.lead * (1 + self._margin)
        return job.sizes.least if self._remaining() > ahead else job.sizes.preferred
