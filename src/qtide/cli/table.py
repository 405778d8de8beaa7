"""Tables for a terminal: one line per row, nothing dropped, and what is shortened is marked."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from qtide.cli.console import out

NOTHING = "–"
GAP = 2
"""Spaces between two columns."""
LEAST = 7
"""Characters below which no value is shortened."""
INDENT = 4

Row = dict[str, Any]


def print_rows(rows: Sequence[Row], long: Sequence[str] = ()) -> None:
    """Print rows with the same keys; where there is no room, `long` values get lines of their own.

    Columns without any value are left out.
    """
    titles = [title for title in rows[0] if any(row[title] is not None for row in rows)]
    texts = [{title: _text(row[title]) for title in titles} for row in rows]
    width = _width()
    below = [title for title in titles if title in long] if _needed(titles, texts) > width else []
    beside = [title for title in titles if title not in below]
    widths = _fitted(beside, texts, width)
    out.print(Text(_line(widths, {title: title for title in beside}), "bold"), soft_wrap=True)
    out.print(Text("─" * min(width, sum(widths.values()) + GAP * (len(widths) - 1))))
    for row, text in zip(rows, texts, strict=True):
        out.print(Text(_line(widths, text)), soft_wrap=True)
        for title in below:
            if row[title] is not None:
                out.print(Text(_paragraph(title, text[title], width)), soft_wrap=True)


def shortened(text: str, width: int) -> str:
    """The text with its middle left out, which tells names with the same beginning apart."""
    if cell_len(text) <= width:
        return text
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def _width() -> int:
    """That of the terminal, or what COLUMNS says; what goes into a pipe is not shortened."""
    return out.width if out.is_terminal or os.environ.get("COLUMNS") else sys.maxsize


def _text(value: Any) -> str:
    return NOTHING if value is None else " ".join(str(value).split())


def _needed(titles: Sequence[str], texts: Sequence[dict[str, str]]) -> int:
    return sum(_natural(titles, texts).values()) + GAP * (len(titles) - 1)


def _natural(titles: Sequence[str], texts: Sequence[dict[str, str]]) -> dict[str, int]:
    """The width of each column if nothing is shortened."""
    return {
        title: max(cell_len(title), *(cell_len(row[title]) for row in texts)) for title in titles
    }


def _fitted(titles: Sequence[str], texts: Sequence[dict[str, str]], width: int) -> dict[str, int]:
    """The widths of the columns; the widest are narrowed until all fit, or none is wide."""
    widths = _natural(titles, texts)
    while sum(widths.values()) + GAP * (len(widths) - 1) > width:
        widest = max(widths, key=lambda title: widths[title])
        if widths[widest] <= LEAST:
            break
        widths[widest] -= 1
    return widths


def _line(widths: dict[str, int], row: dict[str, str]) -> str:
    cells = (shortened(row[title], width) for title, width in widths.items())
    padded = (
        cell + " " * (width - cell_len(cell))
        for cell, width in zip(cells, widths.values(), strict=True)
    )
    return (" " * GAP).join(padded).rstrip()


def _paragraph(title: str, text: str, width: int) -> str:
    indent = " " * INDENT
    return textwrap.fill(
        f"{title}: {text}", min(width, 1000), initial_indent=indent, subsequent_indent=indent + "  "
    )
