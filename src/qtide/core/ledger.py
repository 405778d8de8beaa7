"""The ledger: spans of one job, as events in one format for real and simulated runs.

A span is written when it opens and when it closes, so that a driver that dies leaves a readable
ledger. Nobody knows when its open spans ended: they lasted at least until its last event. So a
driver that stands still writes every few seconds that it is alive.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

What = Literal["run", "phase", "held", "starting", "busy", "wait"]
"""run: the driver is running; phase: one phase of the program; held: the job holds a node or QPU
slot; starting: the node cannot work at full speed yet, or loads modules within a task; busy: it
works, except while it is starting; wait: a request is queued."""

Event = dict[str, Any]


class Interval(NamedTuple):
    """A span: job `job` had `what` on `lane` from `start` to `end`."""

    job: str
    what: What
    lane: str
    start: float
    end: float
    label: str = ""
    open_ended: bool = False
    """Whether it was not closed: it goes on, or its driver is dead; it lasted at least so long."""
    key: str = ""
    """Of a phase, its place in the program."""

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

    def close(self, at: float | None = None) -> None:
        """End the span, now or at an earlier time that has become known."""
        if self._ledger is not None:
            end = self._ledger.clock() if at is None else max(self.start, at)
            self._ledger.write({"t": end, "end": self._id})
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
        self._silent = True

    def span(self, what: What, lane: str, label: str = "", key: str = "") -> Span:
        """Open a span now; that of a phase has its place in the program as a `key`."""
        identity, start = next(self._identities), self.clock()
        event = self._opening(identity, what, lane, start, label)
        if key:
            event["key"] = key
        self.write(event)
        return Span(self, identity, start)

    def enter(self, what: What, lane: str, start: float, end: float, label: str = "") -> None:
        """Add a span that is over, with times that were measured elsewhere."""
        identity = next(self._identities)
        self.write(self._opening(identity, what, lane, start, label))
        self.write({"t": max(start, end), "end": identity})

    def note(self, what: str, lane: str, **figures: float) -> None:
        """Write down what was decided now, and on which figures."""
        event = {"t": self.clock(), "job": self.job, "note": what, "lane": lane}
        self.write(event | {name: round(value, 3) for name, value in figures.items()})

    def explain(self, what: str, lane: str, why: str) -> None:
        """Write down what was decided now, and the reason in words."""
        event = {"t": self.clock(), "job": self.job, "note": what, "lane": lane}
        self.write(event | {"why": why})

    def beat(self) -> None:
        """Write that the driver is alive, if nothing else was written since the last call."""
        if self._silent:
            self.write({"t": self.clock(), "job": self.job, "alive": True})
        self._silent = True

    def write(self, event: Event) -> None:
        """Append one event; a ledger in a file keeps nothing in memory.

        A run does not fail because of its ledger: after an `error`, the ledger stays incomplete.
        Nor does a node that is given back only once its run has ended.
        """
        self._silent = False
        if self._file is None:
            self.events.append(event)
        elif self.error is None and not self._file.closed:
            try:
                self._file.write(json.dumps(event) + "\n")
            except OSError as error:
                self.error = error

    def _opening(self, identity: int, what: What, lane: str, start: float, label: str) -> Event:
        event: Event = {"t": start, "id": identity, "job": self.job, "what": what, "lane": lane}
        if label:
            event["label"] = label
        return event

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


def read(file: Path, now: float = 0.0) -> list[Interval]:
    """The intervals of a ledger file; `now` is the present moment if its driver is alive."""
    return list(intervals(read_events(file), now))


def read_events(file: Path) -> Iterator[Event]:
    """The events of a ledger file; torn lines are skipped."""
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def intervals(events: Iterable[Event], now: float = 0.0) -> Iterator[Interval]:
    """Pair openings with closings. What was never closed lasted until the last event, at least."""
    opened: dict[int, Event] = {}
    last = 0.0
    for event in events:
        if event.get("what") == "run":  # a new driver: all spans of an earlier one are over
            yield from _open_ended(opened, last)
            opened, last = {}, 0.0
        last = max(last, event["t"])
        if "end" in event:
            if event["end"] in opened:
                yield _interval(opened.pop(event["end"]), event["t"])
        elif "id" in event:  # others are notes, and signs of life
            opened[event["id"]] = event
    yield from _open_ended(opened, max(last, now))


def left_open(events: Iterable[Event]) -> dict[int, Event]:
    """The openings, by their identities, of the spans that the last driver did not close."""
    opened: dict[int, Event] = {}
    for event in events:
        if event.get("what") == "run":
            opened = {}
        if "end" in event:
            opened.pop(event["end"], None)
        elif "id" in event:
            opened[event["id"]] = event
    return opened


def append(file: Path, events: Iterable[Event]) -> None:
    """Add what came to light later to the ledger of a driver that is dead."""
    with _appending(file) as opened:
        opened.writelines(json.dumps(event) + "\n" for event in events)


def _open_ended(opened: dict[int, Event], last: float) -> Iterator[Interval]:
    for event in opened.values():
        yield _interval(event, max(last, event["t"]))._replace(open_ended=True)


def _interval(event: Event, end: float) -> Interval:
    start, label, key = event["t"], event.get("label", ""), event.get("key", "")
    return Interval(event["job"], event["what"], event["lane"], start, end, label, key=key)


OWN = ("t", "job", "note", "lane", "why")


@dataclass(frozen=True, slots=True)
class Note:
    """Job `job` decided `what` about `lane`."""

    job: str
    what: str
    lane: str
    at: float
    figures: Mapping[str, float]
    why: str = ""
    """The reason, where it is no figure."""


def notes(events: Iterable[Event]) -> Iterator[Note]:
    """The notes among the events of a ledger."""
    for each in events:
        if "note" in each:
            figures = {name: value for name, value in each.items() if name not in OWN}
            what, why = each["note"], each.get("why", "")
            yield Note(each["job"], what, each["lane"], each["t"], figures, why)


Stretch = tuple[float, float]
Cover = list[Stretch]
Covers = dict[tuple[What, str, str], Cover]


def merge(stretches: Iterable[Stretch], gap: float = 0.0) -> Cover:
    """Join stretches that overlap, touch or lie at most `gap` apart; drop the empty ones."""
    cover: Cover = []
    for start, end in sorted(each for each in stretches if each[1] > each[0]):
        if cover and start <= cover[-1][1] + gap:
            cover[-1] = (cover[-1][0], max(cover[-1][1], end))
        else:
            cover.append((start, end))
    return cover


def seconds(cover: Cover) -> float:
    """The total length of the stretches."""
    return sum(end - start for start, end in cover)


def outside(cover: Cover, limits: Cover) -> Cover:
    """The parts of `cover` that lie in none of `limits`."""
    rest: Cover = []
    first = 0
    for start, end in cover:
        while first < len(limits) and limits[first][1] <= start:
            first += 1
        at, index = start, first
        while index < len(limits) and limits[index][0] < end:
            rest.append((at, limits[index][0]))
            at, index = limits[index][1], index + 1
        rest.append((at, end))
    return [each for each in rest if each[1] > each[0]]


def covers(intervals: Iterable[Interval]) -> Covers:
    """The cover of each (what, lane, job) in the ledger."""
    stretches: defaultdict[tuple[What, str, str], Cover] = defaultdict(list)
    for each in intervals:
        stretches[each.what, each.lane, each.job].append((each.start, each.end))
    return {key: merge(value) for key, value in stretches.items()}


def runs(found: Covers) -> dict[str, Cover]:
    """When each job's driver ran."""
    lived: defaultdict[str, Cover] = defaultdict(list)
    for (what, _, job), cover in found.items():
        if what == "run":
            lived[job] += cover
    return {job: merge(cover) for job, cover in lived.items()}
