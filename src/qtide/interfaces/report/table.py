"""The comparison of strategies as a table, with the same cells for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from qtide.core.log import printable
from qtide.core.metrics import Metrics

if TYPE_CHECKING:
    from rich.table import Table


def decimals(values: Sequence[float]) -> int:
    """Return the decimals for a column: enough to tell short runs apart, few enough to fit."""
    largest = max(values, default=0.0)
    return 0 if largest >= 10_000 or largest == 0 else 1 if largest >= 10 else 3


def grouped(value: float, digits: int = 1) -> str:
    """Format 1057.84 as 1,057.8."""
    return f"{value:,.{digits}f}"


def brief(value: float) -> str:
    """Format a single number with the decimals it needs."""
    return grouped(value, decimals([value]))


def percent(value: float) -> str:
    """Format 0.4512 as 45.1%."""
    return f"{value:.1%}"


def times(value: float) -> str:
    """Format 0.85 as 0.85×."""
    return f"{value:.2f}×" if value == 0 or value >= 0.005 else "<0.01×"


BASE = "static"
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class TableRow:
    """The metrics of one strategy with a number of concurrent jobs."""

    strategy: str
    jobs: int
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; `best` marks the best of its column among rows with the same number of jobs.

    On a page, the first cell of a row may lead to the section `to`.
    """

    text: str
    best: bool = False
    to: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column for one metric; without `better`, no value is marked as best."""

    title: str
    value: Callable[[Metrics], float]
    show: Callable[[float], str] | None = None
    better: Callable[[Iterable[float]], float] | None = None
    relative: bool = False


_COLUMNS = (
    _Column("total s", lambda m: m.total, better=min),
    _Column("wall s per job", lambda m: m.mean_wall, better=min),
    _Column("held node-s", lambda m: m.nodes_held, better=min),
    _Column("start node-s", lambda m: m.nodes_starting),
    _Column("busy node-s", lambda m: m.nodes_busy),
    _Column("busy / held", lambda m: m.efficiency, percent, max),
    _Column("QPU busy", lambda m: m.qpu_occupancy, percent, max),
    _Column("queue s", lambda m: m.queue, better=min),
)
_DIVIDED = (
    *_COLUMNS[:3],
    _Column("held core-s", lambda m: m.cores_held, partial(grouped, digits=0), min),
    _Column("busy core-s", lambda m: m.cores_busy, partial(grouped, digits=0)),
    _Column("busy / held", lambda m: m.core_efficiency, percent, max),
    *_COLUMNS[6:],
)
"""In place of the columns above if tasks shared nodes, or nodes differed."""
_CHARGED = (_Column("charge", lambda m: m.billing_held, partial(grouped, digits=0), min),)
"""If the site says what it charges."""
_GPUS = (_Column("held GPU-s", lambda m: m.gpus_held, partial(grouped, digits=0), min),)
_RELATIVE = (
    _Column("total / static", lambda m: m.total, times, relative=True),
    _Column("held / static", lambda m: m.nodes_held, times, relative=True),
)


def headings(rows: Sequence[TableRow], relative: bool = False) -> list[str]:
    """Return the column titles."""
    return ["strategy", "jobs", *(column.title for column in _columns(rows, relative))]


def cells(rows: Sequence[TableRow], relative: bool = False) -> list[list[Cell]]:
    """Return the cells of each row; `relative` adds columns relative to static."""
    columns = [_column(column, rows) for column in _columns(rows, relative)]
    heads = ([Cell(row.strategy), Cell(str(row.jobs))] for row in rows)
    return [[*head, *(column[i] for column in columns)] for i, head in enumerate(heads)]


def rich_table(rows: Sequence[TableRow], relative: bool = False) -> Table:
    """Return the table for a terminal; the best values are bold and green."""
    from rich.box import SIMPLE_HEAD  # most commands that import this file show no table
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=0, pad_edge=False)
    for index, title in enumerate(headings(rows, relative)):
        table.add_column(title, justify="right" if index else "left", no_wrap=index == 0)
    for index, line in enumerate(cells(rows, relative)):
        if index and rows[index].jobs != rows[index - 1].jobs:
            table.add_section()
        table.add_row(
            *(Text(printable(cell.text), "bold green" if cell.best else "") for cell in line)
        )
    return table


def _columns(rows: Sequence[TableRow], relative: bool) -> tuple[_Column, ...]:
    columns: tuple[_Column, ...] = _COLUMNS
    if any(row.metrics.divided for row in rows):
        columns = _DIVIDED
        if any(row.metrics.gpus_held for row in rows):
            columns = (*_DIVIDED[:6], *_GPUS, *_DIVIDED[6:])
    if any(row.metrics.billing_held for row in rows):
        # without the busy core-seconds, which busy / held tells as well, it fits into 80 columns
        rest = (each for each in columns[3:] if each.title != "busy core-s")
        columns = (*columns[:3], *_CHARGED, *rest)
    return columns + (_RELATIVE if relative else ())


def _column(column: _Column, rows: Sequence[TableRow]) -> list[Cell]:
    values = [_value(column, row, rows) for row in rows]
    known = [value for value in values if value is not None]
    show = column.show or partial(grouped, digits=decimals(known))
    texts = [NOTHING if value is None else show(value) for value in values]
    return [
        Cell(text, _best(column, text, [texts[i] for i in peers], [values[i] for i in peers]))
        for text, row in zip(texts, rows, strict=True)
        for peers in [[i for i, other in enumerate(rows) if other.jobs == row.jobs]]
    ]


def _value(column: _Column, row: TableRow, rows: Sequence[TableRow]) -> float | None:
    value = column.value(row.metrics)
    if not column.relative:
        return value
    bases = [r.metrics for r in rows if r.jobs == row.jobs and r.strategy == BASE]
    base = column.value(bases[0]) if bases else 0.0
    return value / base if base > 0 else None


def _best(column: _Column, text: str, texts: Sequence[str], values: Sequence[float | None]) -> bool:
    """Whether a text is best; equal texts are equally good, and if all are equal, none is best."""
    known = {value: shown for value, shown in zip(values, texts, strict=True) if value is not None}
    if column.better is None or len(set(known.values())) < 2:
        return False
    return text == known[column.better(known)]
