"""The command `qtide`: turns errors into sentences and exit codes."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from pathlib import Path
from typing import Annotated

import typer

from qtide.cli.commands import Commands
from qtide.errors import QtideError
from qtide.version import __version__

INTERRUPTED = 130
EPILOG = "Each command has --help with an example, and --json for scripts."


def common(
    config: Annotated[
        Path | None,
        typer.Option(help="Options from this file alone.  [default: qtide.toml, here and yours]"),
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


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    if words == ["--version"]:
        typer.echo(f"qtide {__version__}")
        return
    try:
        application()(words, prog_name="qtide")
    except QtideError as error:
        if "--traceback" in words:
            raise
        typer.echo(f"qtide: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if "--traceback" in words:
            raise
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"qtide: {where}{error.strerror}; what was done is kept", err=True)
        sys.exit(1)
    except CancelledError:
        typer.echo("qtide: interrupted; everything was given back: qtide resume last", err=True)
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
