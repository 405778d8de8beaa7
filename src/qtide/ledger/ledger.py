"""The ledger: spans of one job, as events in one format for real and simulated runs.

A span is written when it opens and when it closes, so that a driver that dies leaves a readable
ledger: its open spans end at its last event.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, TextIO

What = Literal["run", "phase", "held", "starting", "busy", "wait"]
"""run: the driver is running; phase: one phase of the program; held: the job holds a node or QPU
slot; starting: the node cannot work at full speed yet, or loads modules within a task; busy: it
works, except while it is starting; wait: a request is queued."""

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed span: job `job` had `what` on `lane` from `start` to `end`."""

    job: str
    what: What
    lane: str
    start: float
    end: float
    label: str = ""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.start


class Span:
    """An open span; closing it twice is harmless."""

    __slots__ = ("_id", "_ledger", "start")

    def __init__(self, ledger: Ledger, identity: int, start: float) -> None:
        self._ledger: Ledger | None = ledger
        self._id = identity
        self.start = start

    def close(self) -> None:
        """End the span now."""
        if self._ledger is not None:
            self._ledger.write({"t": self._ledger.clock(), "end": self._id})
            self._ledger = None

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ledger:
    """The spans of one job, kept in memory or appended to a file of JSON lines."""

    def __init__(self, job: str, clock: Callable[[], float], file: Path | None = None) -> None:
        self.job = job
        self.clock = clock
        self.events: list[Event] = []
        self.error: OSError | None = None
        self._file: TextIO | None = _appending(file) if file else None
        self._identities = count(1)

    def span(self, what: What, lane: str, label: str = "") -> Span:
        """Open a span now."""
        identity = next(self._identities)
        event: Event = {
            "t": self.clock(),
            "id": identity,
            "job": self.job,
            "what": what,
            "lane": lane,
        }
        self.write(event | {"label": label} if label else event)
        return Span(self, identity, event["t"])

    def enter(self, what: What, lane: str, start: float, end: float, label: str = "") -> None:
        """Add a span that is over, with times that were measured elsewhere."""
        identity = next(self._identities)
        event = {"t": start, "id": identity, "job": self.job, "what": what, "lane": lane}
        self.write(event | {"label": label} if label else event)
        self.write({"t": max(start, end), "end": identity})

    def note(self, what: str, lane: str, **figures: float) -> None:
        """Write down what was decided now, and on which figures."""
        event = {"t": self.clock(), "job": self.job, "note": what, "lane": lane}
        self.write(event | {name: round(value, 3) for name, value in figures.items()})

    def write(self, event: Event) -> None:
        """Append one event; a ledger in a file keeps nothing in memory.

        A run does not fail because of its ledger: after an `error`, the ledger stays incomplete.
        Nor does a node that is given back only once its run has ended.
        """
        if self._file is None:
            self.events.append(event)
        elif self.error is None and not self._file.closed:
            try:
                self._file.write(json.dumps(event) + "\n")
            except OSError as error:
                self.error = error

    def intervals(self) -> list[Interval]:
        """All spans of a ledger in memory."""
        return list(intervals(self.events))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()


def _appending(file: Path) -> TextIO:
    """Open for appending; if a dead driver left a torn line, end that first."""
    torn = file.is_file() and file.stat().st_size > 0 and _last_byte(file) != b"\n"
    opened = file.open("a", buffering=1)
    if torn:
        opened.write("\n")
    return opened


def _last_byte(file: Path) -> bytes:
    with file.open("rb") as opened:
        opened.seek(-1, os.SEEK_END)
        return opened.read(1)


def read(file: Path) -> list[Interval]:
    """The intervals of a ledger file."""
    return list(intervals(read_events(file)))


def read_events(file: Path) -> Iterator[Event]:
    """The events of a ledger file; torn lines are skipped."""
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def intervals(events: Iterable[Event]) -> Iterator[Interval]:
    """Pair openings with closings. Spans that a dead driver left open end at its last event."""
    opened: dict[int, Event] = {}
    last = 0.0
    for event in events:
        if event.get("what") == "run":  # a new driver: all spans of an earlier one are over
            yield from (_interval(each, last) for each in opened.values())
            opened = {}
        last = event["t"]
        if "note" in event:
            continue
        if "end" in event:
            if event["end"] in opened:
                yield _interval(opened.pop(event["end"]), last)
        else:
            opened[event["id"]] = event
    yield from (_interval(each, last) for each in opened.values())


def _interval(event: Event, end: float) -> Interval:
    return Interval(
        event["job"], event["what"], event["lane"], event["t"], end, event.get("label", "")
    )
