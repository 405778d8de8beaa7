"""Flows: programs as TOML files, of commands, payloads in files, loops and scatters.

A flow is read into a `Program`; nothing else knows that there are such files.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from qtide.backends.payloads.payload import FORMATS, PayloadRefused
from qtide.core.errors import PhaseError, UsageError
from qtide.core.files import write_whole
from qtide.programs.command import CommandResult, CommandTask, command
from qtide.programs.phase import classical, quantum
from qtide.programs.program import Program

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
ANSWER = "answer.json"
"""The file with the answer to a payload."""


def load(path: Path) -> Program:
    """Read a flow; everything that can be wrong without running it is refused here."""
    try:
        flow = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"the flow {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"the flow {path} is not valid TOML: {error}") from None
    _Checked(path, flow)
    home = path.absolute().parent
    files = {name: Path(home / value) for name, value in flow.get("files", {}).items()}
    defaults = files | flow.get("inputs", {})

    async def play(folder: Path = Path(), **given: Any) -> Any:
        run = FlowRun(path, home, folder, defaults | given)
        await run.steps(flow["step"])
        return run.result(flow)

    play.__name__ = play.__qualname__ = re.sub(r"\W", "_", path.stem)
    play.__doc__ = next((line[1:].strip() for line in path.read_text().splitlines() if line), "")
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, kind, default=value, annotation=_type(value))
        for name, value in defaults.items()
    ]
    parameters.append(inspect.Parameter("folder", kind, default=Path(), annotation=Path))
    play.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    play.__annotations__ = {each.name: each.annotation for each in parameters}
    return Program(play, flow.get("nodes"), payload=_first_payload(flow["step"]))


def _first_payload(steps: list[dict[str, Any]]) -> str:
    """The format of the first payload, by the ending of its file; empty if there is none."""
    for step in steps:
        if "quantum" in step:
            words = step["quantum"] if isinstance(step["quantum"], list) else [step["quantum"]]
            return ENDINGS.get(Path(str(words[0]).rstrip("}?")).suffix, "") if words else ""
        if found := _first_payload(step.get("step", [])):
            return found
    return ""


def _type(value: Any) -> Any:
    """The type of an input; the elements of a list have that of its first."""
    if isinstance(value, Path):
        return Path
    return list[type(value[0]) if value else str] if isinstance(value, list) else type(value)  # type: ignore[misc]  # computed


class _Checked:
    """Checks a flow: its keys, the names of its steps, and the steps that are referred to."""

    def __init__(self, path: Path, flow: dict[str, Any]) -> None:
        self._path = path
        self._steps: set[str] = set()
        self._known(flow, TOP, "the flow")
        if not flow.get("step"):
            self._refuse("there is no [[step]]")
        for name in [*flow.get("inputs", {}), *flow.get("files", {})]:
            if not NAME.fullmatch(name) or name == "folder":
                self._refuse(f"{name!r} cannot be the name of an input")
        self._names(flow["step"])
        for step in self._all(flow["step"]):
            for text in _texts({key: step[key] for key in step if key != "step"}):
                for reference, _ in PLACE.findall(text):
                    self._refer(reference, f"the step {step['name']!r}")
        if "result" in flow:
            self._refer(flow["result"], "result")

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
            if len(kinds) != 1:
                self._refuse(f"{where} needs one of command, quantum and step")
            self._known(step, KEYS[kinds[0]], where)
            if kinds == ["step"]:
                self._loop(step, where)
            if "otherwise" in step:
                self._known(step["otherwise"], KEYS["command"], f"otherwise of {where}")

    def _loop(self, step: dict[str, Any], where: str) -> None:
        if not isinstance(step.get("most"), int | str):
            self._refuse(f"{where} needs `most`, the number of rounds after which it ends")
        self._names(step["step"])
        until = step.get("until")
        if until is None:
            return
        self._known(until, UNTIL, f"until of {where}")
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


class FlowRun:
    """A flow that runs: the values of its names, and the files that its steps have written."""

    def __init__(self, path: Path, home: Path, folder: Path, values: Mapping[str, Any]) -> None:
        self._path = path
        self._home = home
        self._folder = folder.absolute()
        self._values = dict(values)
        self._files: dict[str, list[Path]] = {}
        self._answers = 0
        self._last = ""

    async def steps(self, steps: Iterable[Mapping[str, Any]]) -> None:
        """Run steps one after another."""
        for step in steps:
            if "command" in step:
                await self._run_commands(step)
            elif "quantum" in step:
                await self._run_payload(step)
            else:
                await self._run_loop(step)

    def result(self, flow: Mapping[str, Any]) -> Any:
        """What the flow returns: the content of a JSON file, or the output of its last command."""
        if "result" not in flow:
            return self._last.strip()
        return self._json(flow["result"])

    async def _run_commands(self, step: Mapping[str, Any]) -> None:
        scatter = {name: self._list(each) for name, each in step.get("scatter", {}).items()}
        choices = [dict(zip(scatter, each, strict=True)) for each in product(*scatter.values())]
        if not choices:
            raise PhaseError(f"{self._path}: the step {step['name']!r} scatters over nothing")
        tasks = [self._command(step, choice) for choice in choices]
        self._keep(step["name"], await classical(*tasks))

    async def _run_payload(self, step: Mapping[str, Any]) -> None:
        name = step["name"]
        payloads = [self._payload(Path(each)) for each in self._words(step["quantum"], {})]
        otherwise = step.get("otherwise")
        phase = quantum(
            payloads if len(payloads) > 1 else payloads[0],
            shots=step.get("shots"),
            otherwise=None if otherwise is None else self._command({"name": name} | otherwise, {}),
            patience=step.get("patience"),
        )
        answer = await (phase.within(step["within"]) if "within" in step else phase)
        self._answers += 1
        if isinstance(answer, CommandResult):
            self._keep(name, [answer])
            return
        file = self._folder / "commands" / f"{name}-{self._answers}" / ANSWER
        if not file.exists():  # it does if the run was resumed
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, (json.dumps(plain_answer(answer)) + "\n").encode())
        self._files[f"{name}/{ANSWER}"] = [file]

    async def _run_loop(self, step: Mapping[str, Any]) -> None:
        until = step.get("until")
        for number in range(1, int(self._one(step["most"])) + 1):
            self._values[step["name"]] = number
            await self.steps(step["step"])
            if until is not None and self._reached(until):
                return

    def _reached(self, until: Mapping[str, Any]) -> bool:
        value = self._json(until["file"], until.get("value", ""))
        try:
            if "is" in until:
                wanted = self._one(until["is"])
                return bool(value == wanted or str(value) == str(wanted))
            if "at_least" in until:
                return float(value) >= float(self._one(until["at_least"]))
            return float(value) <= float(self._one(until["at_most"]))
        except (TypeError, ValueError):
            raise PhaseError(
                f"{self._path}: {until['file']} has {value!r} as {until.get('value')}, which is no "
                "number"
            ) from None

    def _json(self, reference: str, place: str = "") -> Any:
        """The content of a JSON file of a step, or the value at a place in it, as `a.b`."""
        file = self._found(reference)[-1]
        try:
            content = json.loads(file.read_text())
            return reduce(lambda inner, key: inner[key], filter(None, place.split(".")), content)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            what = f"{place} in it" if place else "it"
            raise PhaseError(
                f"{self._path}: {reference} is not JSON, or {what} does not exist ({error!r})"
            ) from None

    def _command(self, step: Mapping[str, Any], choice: Mapping[str, Any]) -> CommandTask:
        program, *words = [word for each in step["command"] for word in self._words(each, choice)]
        if "/" in program:
            program = str(self._home / program)
        terms = {key: self._term(key, step[key], choice) for key in TERMS if key in step}
        made = command(program, *words, writes=step.get("writes", ()), name=step["name"], **terms)
        nodes, ranks = int(self._one(step.get("nodes", 1))), step.get("ranks_per_node", 1)
        if (nodes, ranks) != (1, 1):
            made = made.on(nodes, ranks_per_node=int(self._one(ranks)))
        if "needs" in step:
            made = made.needs(**step["needs"])  # type: ignore[assignment]  # of the same class
        if "within" in step:
            made = made.within(step["within"])  # type: ignore[assignment]  # as above
        return made

    def _term(self, key: str, value: Any, choice: Mapping[str, Any]) -> Any:
        if key == "reads":
            return [self._home / word for each in value for word in self._words(each, choice)]
        if key == "stdin":
            (file,) = self._words(value, choice)
            return self._home / file
        if key == "folder":
            return self._home / self._one(value, choice)
        if isinstance(value, dict):
            return {name: self._one(each, choice) for name, each in value.items()}
        return value

    def _keep(self, name: str, results: Sequence[CommandResult]) -> None:
        """Let later steps refer to what a step has written."""
        self._last = results[-1].output
        for known in [each for each in self._files if each.startswith(f"{name}/")]:
            del self._files[known]
        for file in {file: None for each in results for file in each.files}:
            found = [each.files[file] for each in results if file in each.files]
            self._files[f"{name}/{file}"] = found

    def _list(self, value: Any) -> list[Any]:
        """The elements of a list that is given, or that a name stands for."""
        if isinstance(value, str):
            return list(self._words(value, {}))
        return list(value)

    def _one(self, value: Any, choice: Mapping[str, Any] | None = None) -> Any:
        """A value, or what its names in braces stand for."""
        return " ".join(self._words(value, choice or {})) if isinstance(value, str) else value

    def _words(self, word: Any, choice: Mapping[str, Any]) -> list[str]:
        """The words that a word stands for; a name of several files, alone, is several words."""
        if not isinstance(word, str):
            return [str(word)]
        if whole := PLACE.fullmatch(word):
            found = self._stands_for(whole[1], choice, optional=bool(whole[2]))
            return [word] if found is None else found

        def replaced(place: re.Match[str]) -> str:
            found = self._stands_for(place[1], choice, optional=bool(place[2]))
            return place[0] if found is None else " ".join(found)

        return [PLACE.sub(replaced, word)]

    def _stands_for(
        self, name: str, choice: Mapping[str, Any], *, optional: bool
    ) -> list[str] | None:
        """What a name stands for; None if it is not ours, as in programs of awk."""
        if "/" in name:
            return [str(each) for each in self._found(name, optional=optional)]
        values = self._values | dict(choice)
        if name not in values:
            return None
        value = values[name]
        return [str(each) for each in value] if isinstance(value, list) else [str(value)]

    def _found(self, reference: str, *, optional: bool = False) -> list[Path]:
        """The files of a step that a reference names; the last part may be a pattern."""
        found = [
            file
            for known, files in self._files.items()
            if known == reference or fnmatch(known, reference)
            for file in files
        ]
        if not found and not optional:
            step = reference.partition("/")[0]
            has = [each for each in self._files if each.startswith(f"{step}/")]
            raise PhaseError(
                f"{self._path}: there is no {reference} yet; the step {step!r} has written "
                f"{', '.join(has) or 'nothing'} (`{{{reference}?}}` may be missing)"
            )
        return found

    def _payload(self, file: Path) -> Any:
        """Read a payload from a file, by its ending."""
        file = self._home / file
        try:
            match file.suffix:
                case ".qasm":
                    return file.read_text()
                case ".qpy":
                    return FORMATS.load("qpy").unpack(file.read_bytes())
                case ".json":
                    return FORMATS.load("bqm").unpack(file.read_bytes())
                case ".bqm":
                    import dimod  # late: only such payloads need it

                    with file.open("rb") as opened:
                        return dimod.BinaryQuadraticModel.from_file(opened)
        except (OSError, ValueError, PayloadRefused) as error:
            raise PhaseError(f"{self._path}: the payload {file} cannot be read: {error}") from None
        raise PhaseError(
            f"{self._path}: the payload {file} has to end with .qasm, .qpy, .bqm or .json (a model)"
        )


def plain_answer(answer: Any) -> Any:
    """A device's answer as JSON: samples with their energies, or counts of each circuit."""
    if hasattr(answer, "aggregate") and hasattr(answer, "data"):  # dimod's samples
        return {
            "lowest": float(answer.first.energy),
            "samples": [
                {
                    "sample": {str(name): int(value) for name, value in each.sample.items()},
                    "energy": float(each.energy),
                    "occurrences": int(each.num_occurrences),
                }
                for each in answer.aggregate().data()
            ],
        }
    if isinstance(answer, list) and all(hasattr(each, "counts") for each in answer):
        return {"counts": [each.counts() for each in answer]}
    try:
        return json.loads(json.dumps(answer))
    except (TypeError, ValueError):
        return repr(answer)
