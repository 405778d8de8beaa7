"""Options of plug-ins, declared once for the command line, files and checks.

A plug-in has a frozen dataclass whose fields are `Annotated[type, Option("a sentence of help")]`,
each with a default. The field names are the option names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf, nan
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """How an option is shown, and how the user's word is converted to its value."""

    help: str
    parse: Callable[[str], Any] | None = None
    """Converter; None converts by the option's type."""
    metavar: str | None = None


@dataclass(frozen=True)
class NoOptions:
    """Options of a plug-in that has none."""


@dataclass(frozen=True)
class Declared:
    """An option declared in a class of options."""

    name: str
    type: Any
    default: Any
    option: Option


def number_from(least: float) -> Callable[[str], float]:
    """Create a parser for finite numbers not below `least`."""

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
    """Options that a class declares, in order."""
    hints = get_type_hints(options, include_extras=True)
    usual = options()
    return [_declared(each.name, hints[each.name], usual) for each in fields(options)]


def chosen(options: type[T], given: Mapping[str, Any]) -> T:
    """Create a class's options from those given; ignore the others."""
    names = {each.name for each in fields(options)}  # type: ignore[arg-type]  # always a dataclass
    return options(**{name: value for name, value in given.items() if name in names})


def _declared(name: str, hint: Any, usual: Any) -> Declared:
    option = next(each for each in hint.__metadata__ if isinstance(each, Option))
    return Declared(name, hint.__origin__, getattr(usual, name), option)
