"""A program's own arguments on the command line, read by the types of its parameters."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from qtide.errors import UsageError
from qtide.programs.program import Program


def parse(program: Program, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from words like `points.csv --threshold 0.8 --fast`."""
    types = _types(program)
    places = [each.name for each in program.signature.parameters.values() if _positional(each)]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            _option(word, rest, types, kwargs)
        elif len(args) < len(places):
            args.append(_convert(places[len(args)], types[places[len(args)]], word))
        else:
            raise UsageError(f"the argument {word!r} is one too many; {usage(program)}")
    for name in places[: len(args)]:
        if name in kwargs:
            raise UsageError(f"--{name} is given twice, by its place as well; {usage(program)}")
    return args, kwargs


def usage(program: Program) -> str:
    """The program's own arguments, in one line."""
    words = []
    for each in program.signature.parameters.values():
        option = f"--{each.name.replace('_', '-')} {each.default!r}"
        words.append(
            each.name.upper() if each.default is inspect.Parameter.empty else f"[{option}]"
        )
    return f"{program.name} takes: {' '.join(words) or 'no arguments'}"


def _option(word: str, rest: list[str], types: dict[str, Any], kwargs: dict[str, Any]) -> None:
    name, equals, text = word[2:].partition("=")
    name = name.replace("-", "_")
    if name not in types:
        raise UsageError(
            f"neither qtide nor the program has an option {word}; the program's own are: "
            f"{', '.join('--' + each.replace('_', '-') for each in types) or 'none'}"
        )
    if _plain(types[name]) is bool and not equals:
        kwargs[name] = True
        return
    if not equals:
        if not rest:
            raise UsageError(f"the option {word} lacks its value")
        text = rest.pop(0)
    value = _convert(name, types[name], text)
    kwargs[name] = kwargs[name] + value if isinstance(value, list) and name in kwargs else value


def _types(program: Program) -> dict[str, Any]:
    try:
        hints = get_type_hints(program.function)
    except Exception:
        hints = {}
    parameters = program.signature.parameters.values()
    return {each.name: hints.get(each.name, _type_of(each.default)) for each in parameters}


def _type_of(default: Any) -> Any:
    return str if default is None or default is inspect.Parameter.empty else type(default)


def _positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind is not inspect.Parameter.KEYWORD_ONLY


def _plain(kind: Any) -> Any:
    """`int | None` is read as int, `list[str]` as list."""
    if get_origin(kind) in (Union, UnionType):
        return _plain(next(each for each in get_args(kind) if each is not type(None)))
    return get_origin(kind) or kind


def _convert(name: str, kind: Any, text: str) -> Any:
    plain = _plain(kind)
    if plain is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise UsageError(f"--{name} is yes or no, not {text!r}")
        return text.lower() in ("true", "yes", "1")
    if plain is list:
        return text.split(",")
    if plain in (int, float, Path):
        try:
            return plain(text)
        except ValueError:
            raise UsageError(f"{name} has to be of type {plain.__name__}, not {text!r}") from None
    return text
