"""The call of a run: its program with its arguments, as words or as any Python values."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from qtide.errors import UsageError
from qtide.jobs.values import Packed, Unstorable, Values
from qtide.programs.arguments import parse
from qtide.programs.load import load
from qtide.programs.program import Playing, Program
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.system.files import Damaged, read_json, write_json

NAME = "call.json"
"""The file of a call that was made in Python."""


@dataclass(frozen=True)
class Call:
    """A program and its arguments."""

    program: Program
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def prepare(self, **given: Any) -> Playing:
        """The coroutine, with what the run provides."""
        return self.program.prepare(list(self.args), dict(self.kwargs), **given)

    def keep(self, folder: Path, values: Values) -> None:
        """Store it with its run; the program itself only if nobody could import it."""
        program = None if importable(self.program) else self.program
        try:
            packed = values.pack((program, self.args, self.kwargs), by_value=True)
        except Unstorable as error:
            raise UsageError(
                f"the arguments of {self.program.name} have to be kept with its run, but {error}; "
                "give plain data, arrays, or a path"
            ) from None
        places = [str(Path(place).absolute()) for place in sys.path]
        write_json(folder / NAME, packed.as_json() | {"path": places})

    @staticmethod
    def read(folder: Path, values: Values, spec: Spec) -> Call:
        """The call of a run that was created earlier, or on the command line."""
        if spec.session:
            raise UsageError(
                f"{folder.name} is a session, not a program: start its script {spec.program} again"
            )
        try:
            kept, args, kwargs = _kept(folder, values)
        except FileNotFoundError:
            program = load(spec.program)
            return Call(program, *parse(program, spec.words))
        return Call(kept or load(spec.program), args, kwargs)


def created(root: Path, name: str, spec: Spec, call: Call | None = None) -> RunFolder:
    """A new run; a call of Python is kept with it, and each run gets a copy of the arguments."""
    run = RunFolder.create(root, name, spec)
    if call is not None:
        try:
            call.keep(run.path, run.values)
        except UsageError:
            rmtree(run.path)
            raise
        _, args, kwargs = _kept(run.path, run.values)
        run.call = Call(call.program, args, kwargs)
    return run


def _kept(folder: Path, values: Values) -> tuple[Program | None, Sequence[Any], Mapping[str, Any]]:
    """What `keep` stored: the program only if nobody could import it."""
    entry = read_json(folder / NAME)
    sys.path += [place for place in entry.pop("path", ()) if place not in sys.path]
    try:
        program, args, kwargs = values.unpack(Packed.from_json(entry))
    except Exception as error:
        raise Damaged(
            f"the arguments in {folder / NAME} cannot be read ({error}); start a new run"
        ) from None
    return program, args, kwargs


def reference(program: Program) -> str:
    """How a program is found again: its file or module, and its name; in a notebook, nowhere."""
    module, name = sys.modules.get(program.function.__module__), program.function.__name__
    file = getattr(module, "__file__", None)
    if module is None or getattr(module, name, None) is not program:
        return f"<{name}>"
    if module.__name__ == "__main__" or "." not in module.__name__:
        return f"{Path(file).absolute()}:{name}" if file else f"<{name}>"
    return f"{module.__name__}:{name}"


def importable(program: Program) -> bool:
    """Whether another process can import it."""
    return not reference(program).startswith("<")
