"""The command line as a typer application."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli.commands import Commands

EPILOG = "Each command has --help with an example, and --json for scripts."


def common(
    config: Annotated[
        Path | None,
        typer.Option(help="Options from this file only.  [default: qtide.toml, here and yours]"),
    ] = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error came from.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Options of every command."""


def application() -> typer.Typer:
    """The command line."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Share scarce quantum processors among the jobs of an HPC cluster.",
        epilog=EPILOG,
    )
    app.callback()(common)
    return app
