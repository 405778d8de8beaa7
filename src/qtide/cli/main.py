"""The command `qtide`: gathers the commands and turns errors into sentences and exit codes."""

from __future__ import annotations

import sys
import tomllib
from asyncio import CancelledError
from pathlib import Path
from typing import Annotated, Any

import typer

from qtide import __version__
from qtide.cli.box import box
from qtide.cli.cancel import cancel
from qtide.cli.compare import compare
from qtide.cli.devices import devices
from qtide.cli.drain import drain
from qtide.cli.list import list_runs
from qtide.cli.prolog import prolog
from qtide.cli.queue import queue
from qtide.cli.reap import reap
from qtide.cli.report import report
from qtide.cli.resume import resume
from qtide.cli.run import run
from qtide.cli.serve import serve
from qtide.cli.show import show
from qtide.cli.submit import submit
from qtide.cli.token import token
from qtide.cli.usage import usage
from qtide.errors import QtideError, UsageError

CONFIG = Path("qtide.toml")
INTERRUPTED = 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Share scarce quantum processors among the jobs of an HPC cluster.",
)

OWN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command("run", context_settings=OWN_ARGUMENTS)(run)
app.command("submit", context_settings=OWN_ARGUMENTS)(submit)
app.command("resume")(resume)
app.command("cancel")(cancel)
app.command("list")(list_runs)
app.command("show")(show)
app.command("report")(report)
app.command("compare", context_settings=OWN_ARGUMENTS)(compare)
app.command("reap")(reap)
app.command("serve")(serve)
app.command("prolog")(prolog)
app.command("queue")(queue)
app.command("devices")(devices)
app.command("usage")(usage)
app.command("drain")(drain)
app.add_typer(token, name="token")
app.add_typer(box, name="box")


@app.callback()
def common(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file with a table of options a command. [default: qtide.toml]"),
    ] = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error came from.")
    ] = False,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Options of every command."""
    context.default_map = _settings(config)


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    if words == ["--version"]:
        typer.echo(f"qtide {__version__}")
        return
    try:
        app(words, prog_name="qtide")
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


def _settings(config: Path | None) -> dict[str, Any]:
    """Options from a file: a table for each command, or plain entries for all of them."""
    if config is None and not CONFIG.exists():
        return {}
    path = config or CONFIG
    try:
        entries = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the configuration {path} cannot be read: {error}") from None
    return entries


if __name__ == "__main__":
    main()
