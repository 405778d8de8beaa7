"""Options from files: `qtide.toml` in the current folder, and the user's for all folders.

A top-level entry applies to every command that has the option; an entry in a table, only to that
command. The current folder's file takes precedence, entry by entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from qtide.core.errors import UsageError
from qtide.core.files import (
    Damaged,
    check_own,
    config_folder,
    is_there,
    read_json,
    state_folder,
    write_json,
)

NAME = "qtide.toml"
FOLDER_FILE = "folder file"
COMMAND_LINES = ("wrapper", "launcher", "modules", "salloc", "driver_option", "cc", "fc")
"""Options whose values become words of command lines."""
ALLOWED = "allowed.json"
"""Which command lines of which folders' files the user has allowed, in the state folder."""


@dataclass(frozen=True)
class File:
    """An options file: one table per command, and entries for all commands."""

    path: Path
    source: str
    """Name of the file for the user."""
    entries: dict[str, Any]

    def find(self, command: Sequence[str], option: str) -> Any:
        """Value of an option for a command such as `("token", "new")`; None if not set."""
        tables = [self.entries]
        for name in command:
            inner = tables[-1].get(name)
            tables.append(inner if isinstance(inner, dict) else {})
        found = (table[option] for table in reversed(tables) if option in table)
        return next((value for value in found if not isinstance(value, dict)), None)

    def command_lines(self) -> list[list[Any]]:
        """All entries that are words of command lines, each as its full name and its value."""
        return [list(each) for each in _command_lines(self.entries)]

    @property
    def allowed(self) -> bool:
        """Whether the user has allowed the command lines of this file, as they are now."""
        return _allowed().get(str(self.path.resolve())) == self.command_lines()

    def allow(self) -> None:
        """Remember that the user allows the command lines of this file, as they are now."""
        state_folder().mkdir(parents=True, exist_ok=True)
        known = _allowed() | {str(self.path.resolve()): self.command_lines()}
        write_json(state_folder() / ALLOWED, known)


@dataclass(frozen=True)
class Settings:
    """The entries of all files; the first file takes precedence."""

    files: tuple[File, ...] = ()

    @staticmethod
    def read(config: Path | None = None) -> Settings:
        """Read the files that apply: the named one, or else the folder's and the user's."""
        if config is not None:
            return Settings((_read(Path(config), "--config"),))
        places = ((Path(NAME), FOLDER_FILE), (config_folder() / NAME, "user file"))
        found = {each.resolve(): (each, source) for each, source in places[::-1] if is_there(each)}
        for each, _ in found.values():
            check_own(each, "copy what you need of it, or name it yourself with --config")
        return Settings(tuple(_read(*each) for each in reversed(found.values())))

    def find(self, command: Sequence[str], option: str) -> tuple[Any, File] | None:
        """Value of an option for a command, with the file that sets it; None if not set."""
        found = ((each.find(command, option), each) for each in self.files)
        return next(((value, file) for value, file in found if value is not None), None)

    def refuse_command_lines(self, command: Sequence[str], known: Collection[str]) -> None:
        """Refuse options of a command that would run what the current folder's file names.

        A user who enters a folder that came from elsewhere has not read its files.
        """
        for option in COMMAND_LINES:
            found = self.find(command, option) if option in known else None
            if found is None or found[1].source != FOLDER_FILE or found[1].allowed:
                continue
            raise UsageError(
                f"{found[1].path} sets {option} = {found[0]!r}, which runs as a command; if you "
                f"trust this folder, allow it once: qtide config --allow (or move it to "
                f"{config_folder() / NAME})"
            )

    def defaults(self, command: Any, *names: str) -> dict[str, Any]:
        """Defaults for a command's options, and those of its subcommands, from the files."""
        if inner := getattr(command, "commands", None):
            return {name: self.defaults(each, *names, name) for name, each in inner.items()}
        found = {each.name: self.find(names, option_name(each)) for each in options_of(command)}
        return {name: value[0] for name, value in found.items() if value is not None}

    def entries(self, *command: str) -> Iterator[tuple[File, str, Any]]:
        """Yield the entries in a command's tables, or the top-level ones, each with its file."""
        for file in self.files:
            table = file.entries
            for name in command:
                inner = table.get(name)
                table = inner if isinstance(inner, dict) else {}
            for key, value in table.items():
                yield file, key, value

    def places(self) -> str:
        """The files, for messages."""
        return " or ".join(str(each.path) for each in self.files)


def options_of(command: Any) -> list[Any]:
    """Options of a command that a file may set."""
    return [
        each
        for each in command.params
        if each.param_type_name == "option" and option_name(each) not in ("help", "config")
    ]


def option_name(param: Any) -> str:
    """Name of an option in a file: as on the command line, with `_` for `-`."""
    longest: str = max(param.opts, key=len)
    return longest.lstrip("-").replace("-", "_")


def unknown(file: File, key: str, what: str, known: Collection[str]) -> UsageError:
    """Error for an unknown name, suggesting a similar one."""
    near = get_close_matches(key, known, 1)
    advice = f"did you mean {near[0]!r}?" if near else "remove it"
    return UsageError(f"{file.path}: {what}; {advice}")


def _command_lines(table: dict[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    for key, value in sorted(table.items()):
        if isinstance(value, dict):
            yield from _command_lines(value, *names, key)
        elif key in COMMAND_LINES:
            yield ".".join((*names, key)), value


def _allowed() -> dict[str, Any]:
    try:
        return read_json(state_folder() / ALLOWED)
    except (FileNotFoundError, Damaged):
        return {}


def _read(path: Path, source: str) -> File:
    try:
        entries = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"the configuration {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the configuration {path} cannot be read: {error}") from None
    return File(path, source, _underscored(entries))


def _underscored(table: dict[str, Any]) -> dict[str, Any]:
    """Replace `-` by `_` in all names; users may write either."""
    return {
        key.replace("-", "_"): _underscored(value) if isinstance(value, dict) else value
        for key, value in table.items()
    }
