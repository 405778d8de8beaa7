"""qtide export: runs for others: as a workflow of another engine, as a record."""

from __future__ import annotations

import typer

from qtide.cli.export_crate import ro_crate
from qtide.cli.export_cwl import cwl
from qtide.cli.help import PlainCommand, PlainGroup

export = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Runs for others: as a workflow of another engine, as a record.",
)


@export.callback()
def _group() -> None:
    """Keep each export a command of its own, whatever their number."""


export.command("ro-crate", cls=PlainCommand)(ro_crate)

WITH_SPEC = {"cwl": cwl}
"""The commands that take a program and the options of its run."""
