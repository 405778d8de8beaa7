"""Recorded durations: in virtual time, real work takes as long as it did in an earlier run.

Tasks on a simulated cluster are really called, but how long that takes says nothing about a node.
What they pretend counts; for those that pretend nothing, an earlier run's ledger does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from qtide.clusters.cluster import Work
from qtide.jobs.job import Job
from qtide.ledger.ledger import Interval


class Recorded:
    """The n-th call of a function takes as long as its n-th call took; later ones, the mean."""

    def __init__(self, calls: Mapping[str, Sequence[float]] | None = None) -> None:
        self._calls = calls or {}
        self._counts: Counter[tuple[Job, str]] = Counter()
        self.used: set[str] = set()
        """Tasks that pretended nothing and took as long as they did before,"""
        self.missing: set[str] = set()
        """and those of which nothing is known: they took no time."""

    @staticmethod
    def of(intervals: Iterable[Interval], scale: float) -> Recorded:
        """From a run's ledger, on whose clock a second took `scale` real seconds."""
        calls: dict[str, list[float]] = defaultdict(list)
        spans = sorted(intervals, key=lambda interval: interval.start)
        imports = {(each.lane, each.start): each.seconds for each in spans if _within_a_task(each)}
        for each in spans:
            if each.what == "busy" and each.lane.startswith("node/"):
                worked = each.seconds - imports.get((each.lane, each.start), 0.0)
                calls[each.label].append(worked * scale)
        return Recorded(calls)

    def seconds(self, work: Work, pretended: float | None) -> float:
        """How long a task takes; what it pretended, if anything, counts alone."""
        if pretended is not None:
            return pretended
        name = work.task.name
        known = self._calls.get(name)
        if not known:
            self.missing.add(name)
            return 0.0
        self.used.add(name)
        number = self._counts[work.job, name]
        self._counts[work.job, name] += 1
        return known[number] if number < len(known) else fmean(known)


def _within_a_task(interval: Interval) -> bool:
    """What a task has to import first is part of its node's start, which has no label itself."""
    return interval.what == "starting" and bool(interval.label)
