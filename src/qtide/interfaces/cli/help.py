"""Commands as Typer's, with plain help: 80 columns, options under one heading per owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

Context = Any
"""Typer's context class, which it does not fully export."""
TYPE = re.compile(r"<([^<>]+)>")
WORDS = {"str": "TEXT", "int": "N", "float": "NUMBER", "int range": "N", "float range": "NUMBER"}
"""Placeholders of values by type."""
REQUIRED = "  [required]"
"""Not shown for arguments: brackets mark the optional ones."""


class QuickValue:
    """Converts the value of a parameter; Typer does so by pydantic, which takes long to load."""

    def __init__(self, slow: Callable[[], Any]) -> None:
        self._slow = slow

    def __call__(self) -> QuickValue:
        """Take the place of the method of a Typer parameter that returns its converter."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Context) -> Any:
        """Pass on text, paths and absent values as they are; leave all others to Typer."""
        kind = param.type_descriptor.annotation
        if not param.multiple and param.nargs == 1:
            if value is None or (kind is str and isinstance(value, str)):
                return value
            if kind is Path and isinstance(value, str | Path):
                return Path(value)
        try:
            return self._slow().coerce(value, param=param, ctx=ctx)
        except BadParameter as error:
            error.message = error.message.replace("Input should be", "it has to be")
            raise


def _quickened(params: list[Any]) -> list[Any]:
    """Return parameters that convert simple values without pydantic."""
    for param in params:
        slow = getattr(param, "get_runtime_param", None)  # earlier versions of Typer have none
        if slow is not None and not isinstance(slow, QuickValue):
            param.get_runtime_param = QuickValue(slow)
    return params


class PlainCommand(TyperCommand):
    """A command that lists each option under its own heading, by default `Options`."""

    def get_params(self, ctx: Context) -> list[Any]:
        """Return the parameters, also those that Typer has added."""
        return _quickened(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Context) -> list[str]:
        """Show arguments as in manuals: a name, in brackets if optional."""
        return [piece.strip("{}").upper() for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Context, formatter: Any) -> None:
        """Write arguments, then options, under one heading each."""
        write_options(self, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands, each described by a whole sentence."""

    def get_params(self, ctx: Context) -> list[Any]:
        """Return the parameters, also those that Typer has added."""
        return _quickened(super().get_params(ctx))

    def format_options(self, ctx: Context, formatter: Any) -> None:
        """Write options, then commands."""
        write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """Write the first sentence of each command's help, wrapped rather than cut."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, first_sentence(each.help)) for name, each in commands if each]
            )


def write_options(command: Any, ctx: Context, formatter: Any) -> None:
    """Write the parameters of a command under their headings."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(ctx):
        record = each.get_help_record(ctx)
        if record is not None and each.param_type_name == "argument":
            name = TYPE.sub("", record[0]).rstrip().upper()
            panels.setdefault("Arguments", []).append((name, record[1].removesuffix(REQUIRED)))
        elif record is not None:
            panel = getattr(each, "rich_help_panel", None) or "Options"
            panels.setdefault(panel, []).append((TYPE.sub(_word, record[0]), record[1]))
    for heading, rows in panels.items():
        title, _, about = heading.partition("\n")
        with formatter.section(title):
            if about:
                formatter.write_text(about)
            formatter.write_dl(rows)


def first_sentence(text: str | None) -> str:
    """Return the first sentence of a help text."""
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.;?])\s", paragraph)[0].rstrip(".;?") + "."


def _word(kind: re.Match[str]) -> str:
    """Return the placeholder for a value type; a choice is shown as its alternatives."""
    single = kind[1].removeprefix("list[").removesuffix("]")
    return WORDS.get(single, single if "|" in single else single.upper())
