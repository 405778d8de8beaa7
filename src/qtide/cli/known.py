"""The names that a file of options may use: commands as tables, their options as entries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from qtide.cli.commands import COMMANDS, load
from qtide.runs.settings import Settings, option_name, options_of, unknown


def check(settings: Settings, name: str, command: Any) -> None:
    """Refuse tables that name no command, and entries that are no option of it, or of any."""
    for file, key, value in settings.entries():
        if isinstance(value, dict) and key not in COMMANDS:
            raise unknown(file, key, f"there is no command for the table [{key}]", COMMANDS)
        if not isinstance(value, dict) and not _known_somewhere(key, command):
            raise unknown(file, key, f"no command has an option {key!r}", _every_name())
    _check_table(settings, (name,), command)


def leaves(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command, or its subcommands, each with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from leaves(each, *path, name)


def _check_table(settings: Settings, path: tuple[str, ...], command: Any) -> None:
    inner = getattr(command, "commands", {})
    for file, key, value in settings.entries(*path):
        table = isinstance(value, dict)
        known = {*inner} if table else _names(command)
        if key not in known and not table:
            known |= _plugin_names(command)
        if key not in known:
            noun = "table" if table else "option"
            raise unknown(file, key, f"[{'.'.join(path)}] has no {noun} {key!r}", known)
    for name, each in inner.items():
        _check_table(settings, (*path, name), each)


def _known_somewhere(key: str, command: Any) -> bool:
    """Whether any command has the option; as few as possible are imported to find out."""
    from qtide.runs.spec import Spec

    near = key in _names(command) or key in Spec.__dataclass_fields__
    return near or key in _every_plugin_name() or key in _every_name()


def _names(command: Any) -> set[str]:
    """The options of a command, or of its subcommands."""
    return {option_name(each) for _, leaf in leaves(command) for each in options_of(leaf)}


def _plugin_names(command: Any) -> set[str]:
    """The options that a command would have with another cluster or strategy."""
    return _every_plugin_name() if "cluster" in _names(command) else set()


@cache
def _every_name() -> set[str]:
    """The options of all commands; this imports all of them."""
    loaded = (load(name, [], Settings()) for name in COMMANDS)
    return _every_plugin_name().union(*map(_names, loaded))


@cache
def _every_plugin_name() -> set[str]:
    from qtide.runs.owners import others

    return {each.name for owned in others([]) for each in owned.options}
