"""The ledger: a job's spans, as events in one format for real and simulated runs.

A span is written when it opens and when it closes, so that a driver that dies leaves a readable
ledger. The end of its open spans is unknown: they lasted at least until its last event. An idle
driver therefore writes a sign of life every few seconds.
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
    """Whether it was never closed: it is still open or its driver died; `end` is a lower bound."""
    key: str = ""
    """For a phase, its place in the program."""
    part: tuple[int, int] | None = None
    """The numbers of cores and GPUs: of a node that is held, or of a task that has a part of it."""
    rate: float = 0.0
    """What the site charges for each second of it; 0 if that is unknown."""

    @property
    def seconds(self) -> float:
        """Duration of the span."""
        return self.end - self.start


class Span:
    """An open span; closing it twice is harmless."""

    __slots__ = ("_id", "_ledger", "division", "start")

    def __init__(self, ledger: Ledger, identity: int, start: float) -> None:
        self._ledger: Ledger | None = ledger
        self._id = identity
        self.start = start
        self.division: list[tuple[str, float]] = []
        """Labels and seconds of what it consisted of, if that was several things in a row."""

    def close(self, at: float | None = None) -> None:
        """End the span, now or at the given time."""
        if self._ledger is not None:
            end = self._ledger.clock() if at is None else max(self.start, at)
            event: Event = {"t": end, "end": self._id}
            if self.division:
                event["division"] = [(name, round(each, 6)) for name, each in self.division]
            self._ledger.write(event)
            self._ledger = None

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ledger:
    """A job's spans, kept in memory or appended to a file of JSON lines."""

    def __init__(self, job: str, clock: Callable[[], float], file: Path | None = None) -> None:
        self.job = job
        self.clock = clock
        self.events: list[Event] = []
        self.error: OSError | None = None
        self._file: TextIO | None = _appending(file) if file else None
        self._identities = count(1)
        self._silent = True

    def span(
        self,
        what: What,
        lane: str,
        label: str = "",
        key: str = "",
        part: tuple[int, int] | None = None,
        rate: float = 0.0,
    ) -> Span:
        """Open a span now; the arguments are the fields of an `Interval`."""
        identity, start = next(self._identities), self.clock()
        event = self._opening(identity, what, lane, start, label)
        if key:
            event["key"] = key
        if part:
            event["part"] = part
        if rate:
            event["rate"] = round(rate, 6)
        self.write(event)
        return Span(self, identity, start)

    def enter(self, what: What, lane: str, start: float, end: float, label: str = "") -> None:
        """Add a finished span with times measured elsewhere."""
        identity = next(self._identities)
        self.write(self._opening(identity, what, lane, start, label))
        self.write({"t": max(start, end), "end": identity})

    def note(self, what: str, lane: str, **figures: float) -> None:
        """Record a decision made now and the figures behind it."""
        event = {"t": self.clock(), "job": self.job, "note": what, "lane": lane}
        self.write(event | {name: round(value, 3) for name, value in figures.items()})

    def explain(self, what: str, lane: str, why: str) -> None:
        """Record a decision made now and the reason in words."""
        event = {"t": self.clock(), "job": self.job, "note": what, "lane": lane}
        self.write(event | {"why": why})

    def beat(self) -> None:
        """Write a sign of life if nothing else was written since the last call."""
        if self._silent:
            self.write({"t": self.clock(), "job": self.job, "alive": True})
        self._silent = True

    def write(self, event: Event) -> None:
        """Append one event; a ledger in a file keeps nothing in memory.

        A run does not fail because of its ledger: after an `error`, the ledger stays incomplete.
        Events after `close` are dropped, as when a node is released after its run has ended.
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
    """Open for appending; first terminate a torn line left by a dead driver."""
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
    """Read the intervals of a ledger file; `now` is the current time if its driver is alive."""
    return list(intervals(read_events(file), now))


def read_events(file: Path) -> Iterator[Event]:
    """Yield the events of a ledger file; skip torn lines."""
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def intervals(events: Iterable[Event], now: float = 0.0) -> Iterator[Interval]:
    """Pair openings with closings; spans never closed last until the last event."""
    opened: dict[int, Event] = {}
    last = 0.0
    for event in events:
        if event.get("what") == "run":  # a new driver: all spans of the previous one are over
            yield from _open_ended(opened, last)
            opened, last = {}, 0.0
        last = max(last, event["t"])
        if "end" in event:
            if event["end"] in opened:
                whole = _interval(opened.pop(event["end"]), event["t"])
                yield from _divided(whole, event["division"]) if "division" in event else [whole]
        elif "id" in event:  # others are notes and signs of life
            opened[event["id"]] = event
    yield from _open_ended(opened, max(last, now))


def left_open(events: Iterable[Event]) -> dict[int, Event]:
    """Opening events, by id, of the spans that the last driver did not close."""
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
    """Append events that became known later to the ledger of a dead driver."""
    with _appending(file) as opened:
        opened.writelines(json.dumps(event) + "\n" for event in events)


def _open_ended(opened: dict[int, Event], last: float) -> Iterator[Interval]:
    for event in opened.values():
        yield _interval(event, max(last, event["t"]))._replace(open_ended=True)


def _interval(event: Event, end: float) -> Interval:
    start, label, key = event["t"], event.get("label", ""), event.get("key", "")
    part = tuple(event["part"]) if "part" in event else None
    rate = event.get("rate", 0.0)
    return Interval(
        event["job"], event["what"], event["lane"], start, end, label, False, key, part, rate
    )


def _divided(whole: Interval, division: Iterable[tuple[str, float]]) -> Iterator[Interval]:
    """The things that a span consisted of, one after the other."""
    start = whole.start
    for label, each in division:
        end = min(start + each, whole.end)
        yield whole._replace(start=start, end=end, label=label)
        start = end


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
    """The reason in words, if it is not given by figures."""


def notes(events: Iterable[Event]) -> Iterator[Note]:
    """Yield the notes among a ledger's events."""
    for each in events:
        if "note" in each:
            figures = {name: value for name, value in each.items() if name not in OWN}
            what, why = each["note"], each.get("why", "")
            yield Note(each["job"], what, each["lane"], each["t"], figures, why)


Stretch = tuple[float, float]
Cover = list[Stretch]
Covers = dict[tuple[What, str, str], Cover]


def merge(stretches: Iterable[Stretch], gap: float = 0.0) -> Cover:
    """Join stretches that overlap, touch or lie at most `gap` apart; drop empty ones."""
    cover: Cover = []
    for start, end in sorted(each for each in stretches if each[1] > each[0]):
        if cover and start <= cover[-1][1] + gap:
            cover[-1] = (cover[-1][0], max(cover[-1][1], end))
        else:
            cover.append((start, end))
    return cover


def seconds(cover: Cover) -> float:
    """Total length of the stretches."""
    return sum(end - start for start, end in cover)


def outside(cover: Cover, limits: Cover) -> Cover:
    """Parts of `cover` that lie in none of `limits`."""
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
    """Cover of each (what, lane, job) in the ledger."""
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
