"""Durations and output of tasks in virtual time."""

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
    """Task durations from an earlier run: the n-th call of a function takes as long as it did then.

    Further calls take the mean.
    """

    def __init__(self, calls: Mapping[str, Sequence[float]] | None = None) -> None:
        self.calls = calls or {}
        """Seconds of each call, by function name."""
        self._counts: Counter[tuple[JobContext, str]] = Counter()
        self.used: set[str] = set()
        """Tasks that pretended nothing and used a recorded duration."""
        self.missing: set[str] = set()
        """Tasks that pretended nothing and have no recorded duration; they took no time."""

    @staticmethod
    def of(intervals: Iterable[Interval], scale: float) -> Recorded:
        """Read durations from a run's ledger; `scale` is real seconds per second of its clock."""
        calls: dict[str, list[float]] = defaultdict(list)
        spans = sorted(intervals, key=lambda interval: interval.start)
        imports = {(each.lane, each.start): each.seconds for each in spans if _within_a_task(each)}
        for each in spans:
            if each.what == "busy" and each.lane.startswith("node/"):
                worked = each.seconds - imports.get((each.lane, each.start), 0.0)
                calls[each.label].append(worked * scale)
        return Recorded(calls)

    def seconds(self, work: Work, pretended: float | None) -> float:
        """Duration of a task: the pretended time, if any, otherwise the recorded one."""
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
    """Whether the interval covers a task's imports; a node's own start has no label."""
    return interval.what == "starting" and bool(interval.label)


class Printed(TextIOWrapper):
    """Replaces stdout and stderr during one task at a time."""

    def __init__(self) -> None:
        self._bytes = BytesIO()
        self.in_use = False
        super().__init__(self._bytes, encoding="utf-8", errors="replace", write_through=True)

    def write(self, text: str, /) -> int:
        """Buffer text; between tasks, when a task's logger may still write, pass it to stderr."""
        if not self.in_use:
            return sys.stderr.write(text)
        return super().write(text) if self._bytes.tell() < MOST else len(text)

    def fileno(self) -> int:
        """The real stderr, for processes that the task starts: their output is not logged."""
        return sys.__stderr__.fileno() if sys.__stderr__ else 2

    def take(self) -> str:
        """Return what was printed since the last call."""
        if not self._bytes.tell():
            return ""
        text = self._bytes.getvalue().decode(errors="replace")
        self._bytes.seek(0)
        self._bytes.truncate()
        return text


_unused: list[Printed] = []
"""Kept for reuse: creating one takes longer than all else that a virtual task does."""


class logged:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within this context, this process's output goes to a log."""

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
