"""The command `qtide`: gathers the commands and turns errors into sentences and exit codes."""

from __future__ import annotations

import sys
import tomllib
from asyncio import CancelledError
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from qtide.errors import QtideError, UsageError
from qtide.version import __version__

CONFIG = Path("qtide.toml")
INTERRUPTED = 130

COMMANDS = {
    "run": "run:run",
    "submit": "submit:submit",
    "resume": "resume:resume",
    "cancel": "cancel:cancel",
    "list": "list:list_runs",
    "show": "show:show",
    "report": "report:report",
    "compare": "compare:compare",
    "reap": "reap:reap",
    "serve": "serve:serve",
    "queue": "queue:queue",
    "devices": "devices:devices",
    "usage": "usage:usage",
    "drain": "drain:drain",
    "token": "token:token",
    "prolog": "prolog:prolog",
    "box": "box:box",
}
"""Where each command is: a module of this package and a name in it."""
OWN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
WITH_PROGRAM = ("run", "submit", "compare")
"""Commands that leave what they do not know to the program they run."""


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


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Share scarce quantum processors among the jobs of an HPC cluster.",
    )
    app.callback()(common)
    for name in names:
        _add(app, name)
    return app


def main() -> None:
    """Run the command line."""
    words = sys.argv[1:]
    if words == ["--version"]:
        typer.echo(f"qtide {__version__}")
        return
    try:
        application(_needed(words))(words, prog_name="qtide")
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


def _needed(words: list[str]) -> list[str]:
    """The command that is meant, since importing all takes half a second; all, for the help."""
    plain = [word for word in words if not word.startswith("-")]
    named = words.index("--config") + 1 if "--config" in words else len(words)
    plain = plain[1:] if words[named : named + 1] == plain[:1] else plain
    return plain[:1] if plain and plain[0] in COMMANDS else list(COMMANDS)


def _add(app: typer.Typer, name: str) -> None:
    module, _, attribute = COMMANDS[name].partition(":")
    command = getattr(import_module(f"qtide.cli.{module}"), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        own = OWN_ARGUMENTS if name in WITH_PROGRAM else None
        app.command(name, context_settings=own)(command)


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
