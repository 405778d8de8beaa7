"""The timeline of a run in characters, drawn from its ledger while the run goes on or later."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO

from qtide.core.ledger import Event, Interval, events_of, intervals
from qtide.core.log import printable
from qtide.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

FILLS = {"held": "░", "starting": "▒", "busy": "█", "wait": "·"}
LEGEND = "░ held  ▒ starting  █ busy  · waiting"
MOST_LANES = 24
NOTEBOOK_WIDTH = 100
"""Columns of a picture in a notebook."""
LABEL = 14
"""Columns of a lane's name."""
PAUSE, PAUSE_MOST = 0.2, 5.0
"""Shortest and longest seconds between two pictures."""
SHARE = 0.05
"""The share of a processor that drawing may take."""
OVER = ("done", "failed", "cancelled", "interrupted")


@dataclass(frozen=True)
class Glyphs:
    """A lane's name and its characters."""

    name: str
    cells: str


class LedgerReader:
    """The events of a run's ledger, of which it reads only what was added."""

    def __init__(self, run: RunFolder) -> None:
        self.events: list[Event] = []
        self._run = run
        self._file: BinaryIO | None = None
        self._torn = b""

    def read(self) -> list[Event]:
        """All events so far; a line that is still being written waits for the next call."""
        if self._file is None and self._run.ledger.is_file():
            self._file = self._run.ledger.open("rb")
        if self._file is not None:
            *lines, self._torn = (self._torn + self._file.read()).split(b"\n")
            self.events += events_of(lines)
        return self.events

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def until(events: Iterable[Event], at: float) -> list[Event]:
    """The events that had happened by a time."""
    return [each for each in events if each["t"] <= at]


def glyphs(spans: Iterable[Interval], since: float, end: float, width: int) -> list[Glyphs]:
    """One row of characters for each node, QPU and queue: waits, then what was held, then work."""
    order = list(FILLS)
    rows: dict[str, list[str]] = {}
    step = max(1e-9, (end - since) / width)
    for span in sorted(spans, key=lambda each: order.index(each.what) if each.what in order else 0):
        if span.what not in FILLS:
            continue
        name = f"queue {span.lane}" if span.what == "wait" else span.lane.partition("/")[2]
        kind = {"qpu": "QPU ", "vqpu": "vQPU "}.get(span.lane.partition("/")[0], "")
        name = name if span.what == "wait" else f"{kind}{name}"
        row = rows.setdefault(name, [" "] * width)
        first = min(width - 1, max(0, int((span.start - since) / step)))
        last = min(width - 1, max(first, int((span.end - since) / step - 1e-9)))
        row[first : last + 1] = FILLS[span.what] * (last + 1 - first)
    names = sorted(rows, key=_place)
    return [Glyphs(name, "".join(rows[name])) for name in names]


def _place(name: str) -> tuple[int, list[str | int]]:
    """Nodes first, in natural order, then QPUs, then queues."""
    kind = 1 if name.startswith(("QPU ", "vQPU ")) else 2 if name.startswith("queue ") else 0
    parts = re.split(r"([0-9]+)", name)
    return kind, [int(part) if index % 2 else part for index, part in enumerate(parts)]


def picture(title: str, events: list[Event], now: float, width: int = 80) -> str:
    """The whole picture as lines of text: a head, the lanes, the phases that run, a legend."""
    spans = list(intervals(events, now))
    if not spans:
        return f"{title}: nothing has happened yet"
    since = min(span.start for span in spans)
    end = max(now, *(span.end for span in spans)) if now else max(span.end for span in spans)
    room = max(10, width - LABEL - 1)
    rows = glyphs(spans, since, end, room)
    lines = [f"{title}, {end - since:,.1f} s"]
    lines += [f"{_short(row.name):<{LABEL}} {row.cells}" for row in rows[:MOST_LANES]]
    if len(rows) > MOST_LANES:
        lines.append(f"and {len(rows) - MOST_LANES} more")
    phases = (span for span in spans if span.what == "phase" and span.open_ended)
    doing = [f"{span.lane} {span.label}" for span in phases]
    lines += [f"now: {', '.join(doing)}"[:width]] if doing else []
    lines.append(LEGEND)
    return "\n".join(map(printable, lines))


def _short(name: str) -> str:
    return name if len(name) <= LABEL else f"{name[: LABEL - 1]}…"


def live(run: RunFolder, width: int) -> Callable[[], str]:
    """Return a function that draws a run as it is now, from what its ledger has gained."""
    from qtide.runs.open_site import world_for  # it loads the cluster's plug-in

    reader = LedgerReader(run)
    world = None

    def draw() -> str:
        nonlocal world
        state = run.state
        if world is None:
            world = world_for(run.spec)
        running = state == "running" and not world.is_virtual
        now = world.now() if running else 0.0
        return picture(f"{run.name} is {state}", reader.read(), now, width)

    return draw


def follow(run: RunFolder, console: Console) -> None:
    """Draw a run until it ends, whoever drives it; without a terminal, draw it once at its end."""
    draw = live(run, console.width)
    with _shown(console) as show:
        while run.state not in OVER:
            time.sleep(_paced(lambda: show(draw())))
        show(draw())


def replay(run: RunFolder, console: Console, speed: float) -> None:
    """Draw a run again from its ledger, `speed` of its seconds per second."""
    events = list(LedgerReader(run).read())
    if not events:
        return
    first, last = min(each["t"] for each in events), max(each["t"] for each in events)
    began = time.monotonic()
    title = f"{run.name}, {speed:g} × as fast"
    with _shown(console) as show:

        def draw() -> None:
            at = first + speed * (time.monotonic() - began)
            show(picture(title, until(events, at), at, console.width))

        while first + speed * (time.monotonic() - began) < last:
            time.sleep(_paced(draw))
        show(picture(title, events, 0.0, console.width))


@contextmanager
def watching(run: RunFolder, console: Console) -> Iterator[None]:
    """Draw a run that this process drives, from a thread of its own, while the block runs."""
    draw = live(run, console.width)
    over = Flag()
    with _shown(console) as show:

        def keep_drawing() -> None:
            while not over.wait(_paced(lambda: show(draw()))):
                pass

        thread = Thread(target=keep_drawing, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PAUSE_MOST)
            show(draw())


def _paced(draw: Callable[[], None]) -> float:
    """Draw, and return how long to rest: longer if drawing takes long, as for a long ledger."""
    began = time.monotonic()
    draw()
    return min(PAUSE_MOST, max(PAUSE, (time.monotonic() - began) / SHARE))


@contextmanager
def _shown(console: Console) -> Iterator[Callable[[str], None]]:
    """Show texts in place on a terminal; elsewhere, print the last one."""
    from rich.live import Live  # many commands do not need it
    from rich.text import Text

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=False) as shown:
            yield lambda text: shown.update(Text(text, no_wrap=True), refresh=True)
        return
    last = ""

    def keep(text: str) -> None:
        nonlocal last
        last = text

    try:
        yield keep
    finally:
        console.file.write(f"{last}\n")
        sys.stdout.flush()
