"""What the commands that call the vQPU service share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.cli.console import out
from qtide.cli.table import print_rows

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
LONG = ("why", "takes", "name", "value", "of")
"""Columns that get lines of their own where there is no room."""
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
    print_rows(rows, LONG)


def clock(moment: float | None) -> str | None:
    """A moment for people: the time if it is today, otherwise the date."""
    if moment is None:
        return None
    form = "%H:%M:%S" if abs(time.time() - moment) < 43_200 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(moment))
