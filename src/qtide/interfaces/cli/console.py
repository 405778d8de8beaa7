"""Output of commands: stdout, stderr, and JSON for scripts."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, Any

import typer

from qtide.core.log import printable

if TYPE_CHECKING:
    from rich.console import Console

    from qtide.runs.comparison import Case


def say(text: str = "") -> None:
    """Print a line to stdout; control characters do not reach the terminal."""
    typer.echo(printable(text))


def warn(text: str) -> None:
    """Print a line to stderr; control characters do not reach the terminal."""
    typer.echo(printable(text), err=True)


def terminal() -> Console | None:
    """Return a console on stderr, for live lines; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console  # it takes long to load

    return Console(stderr=True, soft_wrap=True)


@contextmanager
def status(text: str, pace: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Show a live line while the block runs.

    Without a terminal, print the texts instead, at most one every `pace` seconds.
    """
    console = terminal()
    line = _TimedLine(text)
    if console is not None:
        with console.status(line):
            yield line.update
        return

    def paced(now: str) -> None:
        if line.since_update() >= pace:
            line.update(now)
            warn(now)

    warn(text)
    yield paced


class _TimedLine:
    """A text and the seconds since it was first shown."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = self._changed = time.monotonic()

    def update(self, text: str) -> None:
        self._text, self._changed = text, time.monotonic()

    def since_update(self) -> float:
        return time.monotonic() - self._changed

    def __rich__(self) -> str:
        from rich.markup import escape  # rich is already loaded here

        return escape(printable(f"{self._text}, {time.monotonic() - self._began:,.0f} s"))


def show_table(cases: Sequence[Case]) -> None:
    """Print the figures of cases, with those relative to static if there is room."""
    from rich.console import Console  # many commands do not need it

    from qtide.interfaces.report.table import TableRow, rich_table

    console = Console(soft_wrap=True)
    rows = [TableRow(case.strategy, case.jobs, case.panel().metrics) for case in cases]
    console.print(rich_table(rows, relative=len(rows) > 1 and console.width >= 100))


_reserved: list[IO[str]] = []
"""The real stdout while it is reserved for JSON."""


@contextmanager
def stdout_for_json(*, wanted: bool = True) -> Iterator[None]:
    """Redirect everything but JSON from stdout to stderr while the block runs."""
    if not wanted or _reserved:
        yield
        return
    sys.stdout.flush()
    _reserved.append(os.fdopen(os.dup(1), "w") if sys.stdout is sys.__stdout__ else sys.stdout)
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        _reserved.pop().flush()


def as_json(value: Any, indent: int | None = 2) -> None:
    """Print one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=indent), file=_reserved[-1] if _reserved else None)


NOTHING = "–"
GAP, NARROW = 2, 1
"""Spaces between columns: usually, and where room is short."""
SHORT, LEAST = 8, 6
"""Columns up to SHORT characters wide, such as times, stay whole; wider ones keep LEAST."""
INDENT = 4

Row = dict[str, Any]


def print_rows(rows: Sequence[Row], long: Sequence[str] = ()) -> None:
    """Print rows with the same keys; where room is short, `long` values get their own lines.

    Omit columns without any value.
    """
    titles = [title for title in rows[0] if any(row[title] is not None for row in rows)]
    texts = [{title: _text(row[title]) for title in titles} for row in rows]
    width = _width()
    crowded = _total(_natural(titles, texts), GAP) > width
    below = [title for title in titles if title in long and crowded]
    beside = [title for title in titles if title not in below]
    gap, widths = GAP, _fitted(beside, texts, width, GAP)
    if _total(widths, gap) > width:
        gap, widths = NARROW, _fitted(beside, texts, width, NARROW)
    typer.echo(typer.style(_line(widths, {title: title for title in beside}, gap), bold=True))
    say("─" * min(width, _total(widths, gap)))
    for row, text in zip(rows, texts, strict=True):
        say(_line(widths, text, gap))
        for title in below:
            if row[title] is not None:
                say(_paragraph(title, text[title], width))


def shortened(text: str, width: int) -> str:
    """Shorten a text in the middle, so that names with the same beginning stay distinct."""
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def _width() -> int:
    """Return the width of the terminal, or COLUMNS; output to a pipe is not shortened."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return get_terminal_size().columns
    return sys.maxsize


def _text(value: Any) -> str:
    return NOTHING if value is None else printable(" ".join(str(value).split()))


def cell_len(text: str) -> int:
    """Return the terminal columns a text takes: two per wide character, none per combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def _total(widths: dict[str, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _natural(titles: Sequence[str], texts: Sequence[dict[str, str]]) -> dict[str, int]:
    """Return the width of each column if nothing is shortened."""
    return {
        title: max(cell_len(title), *(cell_len(row[title]) for row in texts)) for title in titles
    }


def _fitted(
    titles: Sequence[str], texts: Sequence[dict[str, str]], width: int, gap: int
) -> dict[str, int]:
    """Return column widths, narrowing the widest until all fit or none can be narrowed."""
    widths = _natural(titles, texts)
    least = {title: max(LEAST, cell_len(title)) for title in titles if widths[title] > SHORT}
    while _total(widths, gap) > width:
        wide = [title for title, few in least.items() if widths[title] > few]
        if not wide:
            break
        widths[max(wide, key=lambda title: widths[title])] -= 1
    return widths


def _line(widths: dict[str, int], row: dict[str, str], gap: int) -> str:
    cells = (shortened(row[title], width) for title, width in widths.items())
    padded = (
        cell + " " * (width - cell_len(cell))
        for cell, width in zip(cells, widths.values(), strict=True)
    )
    return (" " * gap).join(padded).rstrip()


def _paragraph(title: str, text: str, width: int) -> str:
    indent = " " * INDENT
    return textwrap.fill(
        f"{title}: {text}", min(width, 1000), initial_indent=indent, subsequent_indent=indent + "  "
    )
