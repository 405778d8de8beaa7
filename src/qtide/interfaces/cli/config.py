"""qtide config: the options that apply here, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.core.files import config_folder
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.main import COMMANDS, check, leaves, load
from qtide.interfaces.cli.run import ProgramCommand
from qtide.interfaces.cli.service import show_rows
from qtide.runs.run_options import others
from qtide.runs.settings import FOLDER_FILE, NAME, File, Settings, option_name, options_of

UNCONFIGURED = ("json", "install_completion", "show_completion")
"""Options that cannot be set in a file."""


def config(
    context: typer.Context,
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND",
            help="Show only the options of this command.",
            autocompletion=lambda: list(COMMANDS),
        ),
    ] = "",
    allow: Annotated[
        bool,
        typer.Option("--allow", help="Allow the command lines in this folder's qtide.toml."),
    ] = False,
    json: shared_options.Json = False,
) -> None:
    """Show the options that apply here, and where each comes from.

    Example: qtide config run
    """
    if command and command not in COMMANDS:
        raise UsageError(f"there is no command {command!r}; there are: {', '.join(COMMANDS)}")
    assert context.parent is not None
    settings = Settings.read(context.parent.params.get("config"))
    if allow:
        _allow(settings, json_wanted=json)
        return
    names = [command] if command else [each for each in COMMANDS if each != "config"]
    rows = _merged(row for name in names for row in _rows(name, settings))
    if json:
        as_json({"files": [str(each.path.absolute()) for each in settings.files], "options": rows})
        return
    texts = [row | {"value": _shown(row["value"]), "of": _shown(row["of"])} for row in rows]
    show_rows(texts, "the command has no options")
    for line in _places(settings):
        say(line)


def _allow(settings: Settings, *, json_wanted: bool) -> None:
    """Allow what the current folder's file sets; once it changes, it is refused again."""
    found = [each for each in settings.files if each.source == FOLDER_FILE]
    lines = [line for file in found for line in file.command_lines()]
    if not lines:
        raise UsageError(f"no {NAME} in this folder sets a command line: nothing to allow")
    found[0].allow()
    if json_wanted:
        as_json({"file": str(found[0].path.absolute()), "allowed": dict(lines)})
        return
    for name, value in lines:
        say(f"allowed: {name} = {value!r}")


def _rows(name: str, settings: Settings) -> Iterator[dict[str, Any]]:
    loaded = load(name, [], settings)
    check(settings, name, loaded)
    for path, command in leaves(loaded, name):
        full = " ".join(path)
        own = {option_name(each): each for each in options_of(command)}
        for option, param in own.items():
            if option not in UNCONFIGURED and not param.rich_help_panel:
                found = settings.find(path, option)
                yield _row(option, full, _usual(param), found, variable=param.envvar)
        for owner in others([]) if isinstance(command, ProgramCommand) else ():
            for each in owner.options:
                found = settings.find(path, each.name)
                yield _row(each.name, full, each.default, found, only_with=owner.words)


def _row(
    option: str,
    command: str,
    default: Any,
    found: tuple[Any, File] | None,
    *,
    variable: str | None = None,
    only_with: str | None = None,
) -> dict[str, Any]:
    value, source = (found[0], found[1].source) if found else (default, "default")
    if variable and os.environ.get(variable):
        value, source = os.environ[variable], f"environment ({variable})"
    return {
        "option": option,
        "value": value,
        "source": source,
        "only with": only_with,
        "of": [command],
    }


def _usual(param: Any) -> Any:
    default = param.default
    return (
        default if isinstance(default, (str, int, float, list, tuple, type(None))) else str(default)
    )


def _merged(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge options that have the same value from the same source in several commands."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        known = found.setdefault(repr(row | {"of": []}), row)
        known["of"] = list(dict.fromkeys([*known["of"], *row["of"]]))
    return sorted(found.values(), key=lambda row: str(row["option"]))


def _shown(value: Any) -> str | None:
    if value is None or value in ("", [], ()):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _places(settings: Settings) -> Iterator[str]:
    for each in settings.files:
        yield f"{each.source}: {each.path.absolute()}"
    if not settings.files:
        yield f"no file: neither ./{NAME} nor {config_folder() / NAME} exists"
