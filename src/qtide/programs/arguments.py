"""Command-line arguments of a program, converted to the types of its parameters."""

from __future__ import annotations

import inspect
from collections import abc
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from qtide.core.errors import UsageError
from qtide.programs.program import Program

MANY = (list, tuple, set, frozenset, abc.Sequence, abc.Iterable, abc.Set, abc.Collection)
"""Types that take several words: a repeated option, or words separated by commas."""


class UnknownOption(UsageError):  # noqa: N818 - says what is wrong
    """An option that is neither qtide's nor the program's."""

    def __init__(self, given: str, own: Collection[str], others: Collection[str] = ()) -> None:
        options = [f"--{each.replace('_', '-')}" for each in own]
        near = get_close_matches(given, [*own, *others], 1)
        advice = f"did you mean --{near[0].replace('_', '-')}? The" if near else "the"
        super().__init__(
            f"neither qtide nor the program has an option --{given}; {advice} program's own are: "
            f"{', '.join(options) or 'none'}"
        )
        self._given, self._own = given, own

    def among(self, others: Collection[str]) -> UnknownOption:
        """Return the error that may also suggest one of these options."""
        return UnknownOption(self._given, self._own, others)


def parse(program: Program, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Parse words like `points.csv --threshold 0.8 --fast`: positional and keyword arguments."""
    types = _types(program)
    places = _places(program)
    by_place: list[tuple[str, str]] = []
    by_name: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, text = _option(word, rest, types)
            by_name.setdefault(name, []).append(text)
        else:
            by_place.append((next(places, "") or _one_too_many(program, word), word))
    for name, _ in by_place:
        if name in by_name:
            raise UsageError(f"--{name} is given twice, also by its position; {usage(program)}")
    args = [value_of(name, types[name], [word]) for name, word in by_place]
    return args, {name: value_of(name, types[name], texts) for name, texts in by_name.items()}


def value_of(name: str, kind: Any, texts: list[str]) -> Any:
    """Convert words to a type; a type that takes one word uses only the last."""
    from pydantic import ValidationError

    adapter, several = _adapter(kind), _many(kind)
    shown = ",".join(texts) if several else texts[-1]
    parts = [part for part in shown.split(",") if part]
    try:
        return adapter.validate_python(parts) if several else adapter.validate_strings(shown)
    except ValidationError as error:
        for other in _other_ways(adapter, kind, shown, parts):
            with suppress(ValidationError):
                return other()
        option, reason = name.replace("_", "-"), _reason(error, kind)
        raise UsageError(f"the argument {option} cannot be {shown!r}: {reason}") from None


def _other_ways(
    adapter: Any, kind: Any, shown: str, parts: list[str]
) -> Iterator[Callable[[], Any]]:
    """Yield other ways to read the words: JSON, `name=value` pairs, enum member names, None."""
    yield lambda: adapter.validate_json(shown)
    yield lambda: adapter.validate_json(f"[{shown}]")
    if all("=" in part for part in parts):
        yield lambda: adapter.validate_strings(dict(part.split("=", 1) for part in parts))
    for each in _alternatives(kind):
        for member in each if isinstance(each, type) and issubclass(each, Enum) else ():
            if member.name.lower() == shown.lower():
                yield lambda member=member: member  # type: ignore[misc]  # bound here
        if each is type(None) and shown.lower() == "none":
            yield lambda: None


def _reason(error: Any, kind: Any) -> str:
    """Shorten pydantic's message; if it speaks of arrays or objects, name the type instead."""
    told: str = error.errors()[0]["msg"]
    if told.startswith("Input should be") and "array" not in told and "object" not in told:
        return told.partition(", unable to")[0].replace("Input should be", "it should be")
    return f"it should be {_type_name(kind)}"


def usage(program: Program) -> str:
    """One-line summary of the program's own arguments."""
    words = [
        name if needed else f"[{name}{f' {default}' if default else ''}]"
        for name, needed, default in _described(program)
    ]
    return f"{program.name} takes: {' '.join(words) or 'no arguments'}"


def rows(program: Program, taken: Collection[str] = ()) -> list[tuple[str, str]]:
    """Help rows for the program's own arguments: how each is given, its type and its default.

    Arguments whose names qtide's options already use must be given after `--`.
    """
    types = _types(program)
    lines = []
    for each, (name, needed, default) in zip(
        program.signature.parameters.values(), _described(program), strict=True
    ):
        told = "the run's own" if each.name in program.from_run else default
        ending = "[required]" if needed else f"[default: {told}]" if told else ""
        where = "  (after --)" if each.name in taken and each.name not in program.from_run else ""
        lines.append((name, f"{_type_name(types[each.name])}{where}  {ending}".rstrip()))
    return lines


def _described(program: Program) -> Iterator[tuple[str, bool, str]]:
    """Yield how each argument is given, whether it is required, and its default as text."""
    for each in program.signature.parameters.values():
        option = f"--{each.name.replace('_', '-')}"
        if each.kind is each.VAR_POSITIONAL:
            yield f"{each.name.upper()}...", False, ""
        elif each.default is each.empty and each.name not in program.from_run:
            yield (option if each.kind is each.KEYWORD_ONLY else each.name.upper()), True, ""
        else:
            yield option, False, _default_words(each.default)


def _default_words(default: Any) -> str:
    if any(default is nothing for nothing in (inspect.Parameter.empty, None, False)):
        return ""
    if isinstance(default, (list, tuple, set)):
        return ",".join(map(str, default))
    return str(getattr(default, "value", default))


def _type_name(kind: Any) -> str:
    """Name of a type for users; for enums and literals, the possible values."""
    if get_origin(kind) is Annotated:
        return _type_name(get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(each.value) for each in kind)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, type) and get_origin(kind) is None:
        return kind.__name__
    return str(kind).replace("typing.", "")


def _option(word: str, rest: list[str], types: dict[str, Any]) -> tuple[str, str]:
    """Return an option's name and text, removing the words it uses from `rest`."""
    given, equals, text = word[2:].partition("=")
    name = given.replace("-", "_")
    if name.startswith("no_") and _flag(types.get(name[3:])) and not equals:
        return name[3:], "false"
    if name not in types:
        raise UnknownOption(given, types)
    if equals:
        return name, text
    if _flag(types[name]):
        return name, rest.pop(0) if rest and rest[0].lower() in ("true", "false") else "true"
    if not rest:
        raise UsageError(f"the option {word} needs a value")
    return name, rest.pop(0)


def _one_too_many(program: Program, word: str) -> str:
    raise UsageError(f"the argument {word!r} is one too many; {usage(program)}")


def _places(program: Program) -> Iterator[str]:
    """Yield the parameter for each positional word; `*more` takes all remaining words."""
    for each in program.signature.parameters.values():
        while each.kind is each.VAR_POSITIONAL:
            yield each.name
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            yield each.name


def _types(program: Program) -> dict[str, Any]:
    try:
        hints = get_type_hints(program.function, include_extras=True)
    except Exception:  # annotations that only a type checker can resolve
        hints = {}
    parameters = program.signature.parameters.values()
    return {each.name: hints.get(each.name, _type_of(each.default)) for each in parameters}


def _type_of(default: Any) -> Any:
    return str if default is None or default is inspect.Parameter.empty else type(default)


def _alternatives(kind: Any) -> list[Any]:
    """Member types of a union; `Annotated[T, ...]` counts as T."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [part for each in get_args(kind) for part in _alternatives(each)]
    return [kind]


def _many(kind: Any) -> bool:
    return any((get_origin(each) or each) in MANY or _named(each) for each in _alternatives(kind))


def _named(kind: Any) -> bool:
    """Whether a type is a tuple class, such as a named tuple."""
    return isinstance(kind, type) and issubclass(kind, tuple)


def _flag(kind: Any) -> bool:
    return bool in _alternatives(kind)


def _adapter(kind: Any) -> Any:
    """Converter to a type; for a type that pydantic cannot handle, it returns the words."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

    try:
        return TypeAdapter(kind)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return TypeAdapter(Any)
