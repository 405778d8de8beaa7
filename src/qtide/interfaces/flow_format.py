"""What a flow may contain: its keys, what their values have to be, and the steps that it names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from keyword import iskeyword
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from qtide.core.errors import UsageError
from qtide.core.resources import Needs

ENDINGS = {".qasm": "qasm2", ".qpy": "qpy", ".bqm": "bqm", ".json": "bqm"}
"""Formats of payloads by the endings of their files."""
TOP = ("files", "inputs", "nodes", "result", "step")
TERMS = ("env", "folder", "launcher", "modules", "reads", "stdin", "stdout", "success", "wrapper")
"""Keys of a command that are passed to `command()` as they are, or with their names replaced."""
COMMAND = ("command", "name", "needs", "nodes", "ranks_per_node", "scatter", "within", "writes")
KEYS = {
    "command": (*COMMAND, *TERMS),
    "quantum": ("name", "otherwise", "patience", "quantum", "shots", "within"),
    "step": ("most", "name", "step", "until"),
}
"""Keys of a step by its kind, which is the one of these that it has."""
UNTIL = ("at_least", "at_most", "file", "is", "value")
NAME = re.compile(r"[A-Za-z_][\w-]*")
PLACE = re.compile(r"\{([A-Za-z_][\w-]*(?:/[^{}]+?)?)(\??)\}")
"""A name in braces: of an input, of a loop, or of a file of a step, as `{solve/out.h5}`."""
NEEDS = ("cores", "gpus", "kind", "memory")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_count(value: Any) -> bool:
    stands_for_one = isinstance(value, str) and PLACE.search(value) is not None
    return stands_for_one or (type(value) is int and value >= 1)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < inf


def _are(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _table_of(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


def _is_or_are_texts(value: Any) -> bool:
    return _is_text(value) or _are(_is_text)(value)


def _are_payloads(value: Any) -> bool:
    files = [value] if _is_text(value) else value
    return _are(_is_payload)(files) and bool(files)


def _is_payload(file: Any) -> bool:
    places = PLACE.findall(file) if isinstance(file, str) else []
    if places and file.endswith("}") and "/" not in places[-1][0]:
        return True  # an input has the name of the file
    return isinstance(file, str) and Path(file.rstrip("}?")).suffix in ENDINGS


VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "command": (lambda value: _are(_is_word)(value) and value, 'a list of words, as ["ls", "-l"]'),
    "quantum": (_are_payloads, f"files that end with {', '.join(ENDINGS)}"),
    "env": (_table_of(_is_word), "a table of texts and numbers"),
    "scatter": (_table_of(lambda each: isinstance(each, str | list)), "a table of lists"),
    "success": (_are(lambda each: type(each) is int), "a list of exit codes"),
    "reads": (_are(_is_text), "a list of texts"),
    **dict.fromkeys(("most", "nodes", "ranks_per_node"), (_is_count, "a whole number from 1 on")),
    "patience": (_is_time, "a number of seconds from 0 on"),
    "within": (lambda value: _is_time(value) and value > 0, "a number of seconds above 0"),
    "shots": (lambda value: type(value) is int and value >= 1, "a whole number from 1 on"),
    **dict.fromkeys(("folder", "stdin", "stdout"), (_is_text, "a text")),
    **dict.fromkeys(
        ("launcher", "modules", "wrapper", "writes"),
        (_is_or_are_texts, "a text or a list of texts"),
    ),
}
"""What the value of a step's key has to be."""


class FlowFormat:
    """Checks a flow: its keys, the names of its steps, and the steps that are referred to."""

    def __init__(self, path: Path, flow: dict[str, Any]) -> None:
        self._path = path
        self._steps: set[str] = set()
        self._known(flow, TOP, "the flow")
        if not flow.get("step"):
            self._refuse("there is no [[step]]")
        self._arguments(flow)
        self._names(flow["step"])
        for step in self._all(flow["step"]):
            for text in _texts({key: step[key] for key in step if key != "step"}):
                for reference, _ in PLACE.findall(text):
                    self._refer(reference, f"the step {step['name']!r}")
        if "result" in flow:
            self._refer(flow["result"], "result")

    def _arguments(self, flow: dict[str, Any]) -> None:
        inputs, files = flow.get("inputs", {}), flow.get("files", {})
        if not _table_of(lambda each: _is_word(each) or _are(_is_word)(each))(inputs):
            self._refuse("[inputs] has to be a table of texts, numbers and lists of them")
        if not _table_of(_is_text)(files):
            self._refuse("[files] has to be a table of texts, the paths of files")
        for name in [*inputs, *files]:
            if not name.isidentifier() or iskeyword(name) or name == "folder":
                self._refuse(f"{name!r} cannot be the name of an input")
        if type(flow.get("nodes", 1)) is not int or flow.get("nodes", 1) < 1:
            self._refuse(f"nodes has to be a whole number from 1 on, not {flow['nodes']!r}")
        if "/" not in str(flow.get("result", "/")):
            self._refuse(f"result has to be a file of a step, as step/file, not {flow['result']!r}")

    def _names(self, steps: Any) -> None:
        if not isinstance(steps, list) or not all(isinstance(each, dict) for each in steps):
            self._refuse("steps are written as [[step]], those of a loop as [[step.step]]")
        for step in steps:
            name = step.get("name")
            if not isinstance(name, str) or not NAME.fullmatch(name):
                self._refuse(f"each step needs a name of letters, digits, - and _, not {name!r}")
            if name in self._steps:
                self._refuse(f"two steps have the name {name!r}")
            self._steps.add(name)
            where = f"the step {name!r}"
            kinds = [kind for kind in KEYS if kind in step]
            if not kinds:  # one may be misspelt
                self._known(step, sorted(set().union(*KEYS.values())), where)
            if len(kinds) != 1:
                self._refuse(f"{where} needs one of command, quantum and step")
            self._known(step, KEYS[kinds[0]], where)
            self._values(step, where)
            if kinds == ["step"]:
                self._loop(step, where)
            if "patience" in step and "otherwise" not in step:
                self._refuse(f"{where} has patience, but no `otherwise` to run instead")
            if "otherwise" in step:
                self._known(step["otherwise"], KEYS["command"], f"otherwise of {where}")
                self._values({"command": None} | step["otherwise"], f"otherwise of {where}")

    def _values(self, step: dict[str, Any], where: str) -> None:
        for key, (holds, what) in VALUES.items():
            if key in step and not holds(step[key]):
                self._refuse(f"{key} of {where} has to be {what}, not {step[key]!r}")
        writes = step.get("writes", [])
        patterns = [writes] if isinstance(writes, str) else writes
        for pattern in [*patterns, step.get("stdout", "")]:
            if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
                self._refuse(f"{where} writes files within its folder, not {pattern!r}")
        if "needs" in step:
            self._known(step["needs"], NEEDS, f"needs of {where}")
            try:
                Needs.of(**step["needs"])
            except ValueError as error:
                self._refuse(f"needs of {where}: {error}")

    def _loop(self, step: dict[str, Any], where: str) -> None:
        if "most" not in step:
            self._refuse(f"{where} needs `most`, the number of rounds after which it ends")
        self._names(step["step"])
        until = step.get("until")
        if until is None:
            return
        self._known(until, UNTIL, f"until of {where}")
        if not all(map(_is_word, until.values())):
            self._refuse(f"until of {where} has to have texts and numbers, not {until!r}")
        conditions = [key for key in ("at_least", "at_most", "is") if key in until]
        if len(conditions) != 1 or "file" not in until:
            self._refuse(f"until of {where} needs a file, and one of at_least, at_most and is")
        self._refer(until["file"], f"until of {where}")

    def _refer(self, reference: str, where: str) -> None:
        step, slash, _ = reference.partition("/")
        if slash and step not in self._steps:
            near = get_close_matches(step, self._steps, 1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            self._refuse(f"{where} refers to the step {step!r}, which does not exist{advice}")

    def _known(self, table: Any, keys: Sequence[str], where: str) -> None:
        if not isinstance(table, dict):
            self._refuse(f"{where} has to be a table")
        for key in table:
            if key not in keys:
                near = get_close_matches(key, keys, 1)
                advice = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(keys)}"
                self._refuse(f"{where} has no key {key!r}; {advice}")

    def _all(self, steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for step in steps:
            yield step
            yield from self._all(step.get("step", []))

    def _refuse(self, why: str) -> NoReturn:
        raise UsageError(f"{self._path}: {why}")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for each in value.values() for text in _texts(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _texts(each))
