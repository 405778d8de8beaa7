"""What the commands that call the vQPU service share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from qtide.cli.console import out

if TYPE_CHECKING:
    from qtide.client.client import Client

Url = Annotated[
    str | None,
    typer.Option(
        envvar="QTIDE_URL",
        show_envvar=False,
        help="The service (QTIDE_URL).  [default: the one that you started]",
    ),
]
Everybody = Annotated[
    bool, typer.Option("--everybody", help="Of all users, not only yours; for operators.")
]
LONG = ("why", "name", "value", "of")
"""Columns that may take several lines."""
LEAST = 16
"""Characters that such a column has at least; others show by an ellipsis what is left out."""
PATIENCE = 2.0
"""Seconds that a command waits for a service that is unreachable."""


def client(url: str | None) -> Client:
    """The service, with the token from the environment or the access file."""
    from qtide.client.client import Client

    return Client(url, patience=PATIENCE)


def show_rows(rows: Sequence[dict[str, Any]], nothing: str) -> None:
    """Rows as a table, or a sentence if there are none."""
    if not rows:
        out.print(nothing, markup=False)
        return
    titles = [title for title in rows[0] if any(row[title] is not None for row in rows)]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in titles:
        if title in LONG:
            longest = max(len(str(row[title] or "")) for row in rows)
            table.add_column(title, overflow="fold", min_width=min(longest, LEAST))
        else:
            table.add_column(title, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*("–" if row[title] is None else str(row[title]) for title in titles))
    out.print(table)


def clock(moment: float | None) -> str | None:
    """A moment for people: the time if it is today, otherwise the date."""
    if moment is None:
        return None
    form = "%H:%M:%S" if abs(time.time() - moment) < 43_200 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(moment))
