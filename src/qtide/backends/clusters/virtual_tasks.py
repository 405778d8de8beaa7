"""Tasks in virtual time: how long each takes, and where its output goes."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO, TextIOWrapper
from statistics import fmean
from typing import Any

from qtide.backends.clusters.cluster import Work
from qtide.core.job import JobContext
from qtide.core.ledger import Interval
from qtide.core.log import MOST, Log


class Recorded:
    """Durations of an earlier run: the n-th call of a function takes as long as its n-th call did.

    Calls beyond those of the earlier run take the mean.
    """

    def __init__(self, calls: Mapping[str, Sequence[float]] | None = None) -> None:
        self.calls = calls or {}
        """Seconds of each call, by the name of its function."""
        self._counts: Counter[tuple[JobContext, str]] = Counter()
        self.used: set[str] = set()
        """Tasks that pretended nothing and took as long as in the earlier run."""
        self.missing: set[str] = set()
        """Tasks that pretended nothing and are not in the earlier run: they took no time."""

    @staticmethod
    def of(intervals: Iterable[Interval], scale: float) -> Recorded:
        """From a run's ledger; a second of its clock took `scale` real seconds."""
        calls: dict[str, list[float]] = defaultdict(list)
        spans = sorted(intervals, key=lambda interval: interval.start)
        imports = {(each.lane, each.start): each.seconds for each in spans if _within_a_task(each)}
        for each in spans:
            if each.what == "busy" and each.lane.startswith("node/"):
                worked = each.seconds - imports.get((each.lane, each.start), 0.0)
                calls[each.label].append(worked * scale)
        return Recorded(calls)

    def seconds(self, work: Work, pretended: float | None) -> float:
        """How long a task takes: what it pretended, if anything, otherwise as recorded."""
        if pretended is not None:
            return pretended
        name = work.task.name
        known = self.calls.get(name)
        if not known:
            self.missing.add(name)
            return 0.0
        self.used.add(name)
        number = self._counts[work.job, name]
        self._counts[work.job, name] += 1
        return known[number] if number < len(known) else fmean(known)


def _within_a_task(interval: Interval) -> bool:
    """Whether these are a task's imports; the start of a node itself has no label."""
    return interval.what == "starting" and bool(interval.label)


class Printed(TextIOWrapper):
    """Stands for stdout and stderr during one task at a time."""

    def __init__(self) -> None:
        self._bytes = BytesIO()
        self.in_use = False
        super().__init__(self._bytes, encoding="utf-8", errors="replace", write_through=True)

    def write(self, text: str, /) -> int:
        """Keep it; a logger that was set up in a task may also write between tasks."""
        if not self.in_use:
            return sys.stderr.write(text)
        return super().write(text) if self._bytes.tell() < MOST else len(text)

    def fileno(self) -> int:
        """For processes that the task starts: they have no log."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def take(self) -> str:
        """What was printed since the last time."""
        if not self._bytes.tell():
            return ""
        text = self._bytes.getvalue().decode(errors="replace")
        self._bytes.seek(0)
        self._bytes.truncate()
        return text


_unused: list[Printed] = []
"""Kept for reuse: creating one takes longer than the rest of a task in virtual time."""


class logged:  # noqa: N801 - a context manager; a generator would take twice as long
    """Inside of it, what this process prints goes to a log."""

    def __init__(self, log: Log | None, node: str, task: str, function: str) -> None:
        self._log = log
        self._from = (node, task, function)

    def __enter__(self) -> None:
        if self._log is not None:
            self._usual = sys.stdout, sys.stderr
            self._printed = _unused.pop() if _unused else Printed()
            self._printed.in_use = True
            sys.stdout = sys.stderr = self._printed

    def __exit__(self, *_: Any) -> None:
        if self._log is not None:
            sys.stdout, sys.stderr = self._usual
            self._printed.in_use = False
            text = self._printed.take()
            _unused.append(self._printed)
            if text:
                node, *place = self._from
                self._log.write(node, text, *place)
