"""Options: what a plug-in lets its user choose, declared once for command line, file and checks.

A plug-in has a frozen dataclass whose fields are `Annotated[type, Option("a sentence of help")]`,
each with a default. The names of the fields are the names of the options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """How one option is shown, and how the user's word is converted to its value."""

    help: str
    parse: Callable[[str], Any] | None = None
    """None converts it by its type."""
    metavar: str | None = None


@dataclass(frozen=True)
class NoOptions:
    """For a plug-in without options."""


@dataclass(frozen=True)
class Declared:
    """One option of a class of options."""

    name: str
    type: Any
    default: Any
    option: Option


def number_from(least: float) -> Callable[[str], float]:
    """Converts a word to a number that is finite and not below the least one."""

    def parse(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            value = nan
        if not least <= value < inf:
            raise ValueError(f"it should be a number from {least:g} on")
        return value

    return parse


def declared(options: type) -> list[Declared]:
    """The options that a class declares, in its order."""
    hints = get_type_hints(options, include_extras=True)
    usual = options()
    return [_declared(each.name, hints[each.name], usual) for each in fields(options)]


def chosen(options: type[T], given: Mapping[str, Any]) -> T:
    """The options of a class out of all that were given; the rest is ignored."""
    names = {each.name for each in fields(options)}  # type: ignore[arg-type]  # all are dataclasses
    return options(**{name: value for name, value in given.items() if name in names})


def _declared(name: str, hint: Any, usual: Any) -> Declared:
    option = next(each for each in hint.__metadata__ if isinstance(each, Option))
    return Declared(name, hint.__origin__, getattr(usual, name), option)
