"""The options of the chosen cluster and strategy: which there are, and their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_origin

from qtide.errors import UsageError
from qtide.options import Declared
from qtide.programs.arguments import value_of
from qtide.runs.owners import Owner

Owned = dict[str, tuple[Owner, Declared]]
"""Options by their names, each with the plug-in it belongs to."""


def distinct(owners: Iterable[Owner], taken: Iterable[str]) -> Owned:
    """The options of plug-ins; of two with the same name, the first is used."""
    found: Owned = {}
    for owner in owners:
        for each in owner.options:
            if each.name not in taken:
                found.setdefault(each.name, (owner, each))
    return found


def plugin_value(declared: Declared, given: Any) -> Any:
    """The value of a plug-in's option, from the command line, a file or Python."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return declared.default
    if isinstance(given, bool):
        return given
    if several(declared):
        each_kind = next(iter(get_args(declared.type)), str)
        words = [given] if isinstance(given, str) else given
        return [_read(declared, each_kind, str(word)) for word in words]
    return _read(declared, declared.type, str(given))


def several(declared: Declared) -> bool:
    """Whether it takes more than one value."""
    return (get_origin(declared.type) or declared.type) in (list, tuple)


def foreign(name: str, whose: Owner, chosen: Iterable[Owner]) -> UsageError:
    """The error for an option of a plug-in that was not chosen: it would have no effect."""
    here = " and ".join(each.words for each in chosen if each.choice == whose.choice)
    return UsageError(
        f"--{name.replace('_', '-')} is an option of {whose.words}, not of {here}; "
        f"leave it out, or use {whose.words}"
    )


def _read(declared: Declared, kind: Any, word: str) -> Any:
    if declared.option.parse is None:
        return value_of(declared.name, kind, [word])
    try:
        return declared.option.parse(word)
    except ValueError as error:
        option = declared.name.replace("_", "-")
        raise UsageError(f"the argument {option} cannot be {word!r}: {error}") from None
