"""Flows: programs as TOML files, of commands, payloads in files, loops and scatters.

A flow is read into a `Program`; nothing else knows that there are such files.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any

from qtide.backends.payloads.payload import FORMATS, PayloadRefused
from qtide.core.errors import PhaseError, UsageError
from qtide.core.files import write_whole
from qtide.interfaces.flow_format import ENDINGS, PLACE, TERMS, FlowFormat
from qtide.programs.command import CommandResult, CommandTask, command
from qtide.programs.phase import classical, quantum
from qtide.programs.program import Program

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
    FlowFormat(path, flow)
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
        for number in range(1, self._count(step, "most") + 1):
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
        nodes, ranks = self._count(step, "nodes"), self._count(step, "ranks_per_node")
        if (nodes, ranks) != (1, 1):
            made = made.on(nodes, ranks_per_node=ranks)
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

    def _count(self, step: Mapping[str, Any], key: str) -> int:
        """A whole number of a step, which may be an input."""
        value = str(self._one(step.get(key, 1)))
        if not value.isdecimal() or int(value) < 1:
            raise PhaseError(
                f"{self._path}: {key} of the step {step['name']!r} is {value!r}, but has to be a "
                "whole number from 1 on"
            )
        return int(value)

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
            why = getattr(error, "strerror", None) or error
            raise PhaseError(f"{self._path}: the payload {file} cannot be read: {why}") from None
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
