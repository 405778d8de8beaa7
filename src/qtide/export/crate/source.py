"""The source of a run's program and the values of its arguments, as far as they can be had."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qtide.runs.call import Call
from qtide.runs.driver import plain
from qtide.runs.folder import RunFolder

PROVIDED = ("folder", "target")
"""Parameters that say where a program runs, not what it computes."""


@dataclass(frozen=True)
class Source:
    """A program as a file, and what it was called with."""

    name: str
    file: str
    text: str
    summary: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


def source_of(run: RunFolder) -> Source:
    """That of a program or of a session's script; if it is gone, only what the run was told."""
    spec = run.spec
    try:
        if spec.session:
            script = Path(spec.program)
            return Source(script.stem, script.name, script.read_text())
        call = Call.read(run.path, run.values, spec)
        function = call.program.function
        name = Path(inspect.getsourcefile(function) or function.__name__).name
        text = inspect.getsource(inspect.getmodule(function) or function)
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        return Source(call.program.name, name, text, summary, _arguments(call, spec.seed))
    except Exception:  # whatever importing somebody's program may raise
        return _told(run)


def _told(run: RunFolder) -> Source:
    spec = run.spec
    words = " ".join([spec.program, *spec.words])
    text = f"The source was not there when this record was made. The run was: {words}\n"
    return Source(Path(spec.program).stem, "program.txt", text, "", {"arguments": spec.words})


def _arguments(call: Call, seed: int) -> dict[str, Any]:
    """All arguments by name, with the defaults."""
    bound = call.program.signature.bind_partial(*call.args, **call.kwargs)
    if "seed" in call.program.from_run:
        bound.arguments.setdefault("seed", seed)
    bound.apply_defaults()
    given = {name: each for name, each in bound.arguments.items() if name not in PROVIDED}
    return {name: each if isinstance(each, Path) else plain(each) for name, each in given.items()}
