"""The files that travel between the steps of a workflow: a phase to run, and its answer.

A step may run anywhere, so nothing in these files refers to the run's folder.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qtide.core.errors import QtideError
from qtide.core.files import read_json, write_json
from qtide.core.ledger import Interval
from qtide.core.values import Inline, Packed, Unstorable
from qtide.programs.phase import Phase
from qtide.runs.spec import Spec


@dataclass(frozen=True)
class StepInput:
    """One task, as a phase of its own, or one payload, with all that its step has to know."""

    run: str
    key: str
    place: int
    """Index of the task in its phase."""
    phase: Phase
    asked: float
    """When the program asked for it, on the run's clock."""
    spec: Spec

    def write(self, folder: Path) -> Path:
        """Write it to a file that is named by its place in the program."""
        try:
            packed = _pack(self.phase)
        except Unstorable as error:
            raise QtideError(
                f"phase {self.key} of {self.run} cannot be sent to a step: {error}; give tasks "
                "and payloads plain data, arrays or a path"
            ) from None
        file = folder / f"phase-{self.key}-{self.place}.json"
        own = {"run": self.run, "key": self.key, "place": self.place, "asked": self.asked}
        path = [str(Path(folder).absolute()) for folder in sys.path]
        write_json(file, own | {"phase": packed, "spec": asdict(self.spec), "path": path})
        return file

    @staticmethod
    def read(file: Path) -> StepInput:
        """Read what `write` wrote; this process then finds the modules that the program found."""
        entry = read_json(file)
        sys.path += [folder for folder in entry.pop("path") if folder not in sys.path]
        phase, spec = entry.pop("phase"), entry.pop("spec")
        return StepInput(**entry, phase=Inline().unpack(Packed.from_json(phase)), spec=Spec(**spec))


@dataclass(frozen=True)
class StepOutput:
    """The answer of a step: a result or an exception, what was held for it, what it printed."""

    key: str
    place: int
    asked: float
    outcome: dict[str, Any]
    failed: bool = False
    spans: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    kind: str = "classical"
    """Kind of the phase; a payload that failed and the task in its stead have the same place."""
    kept: bool = False
    """Whether an earlier turn of the workflow has counted it already."""

    @staticmethod
    def to(
        given: StepInput, outcome: Any, spans: list[Interval], log: str, *, failed: bool = False
    ) -> StepOutput:
        """Return the answer to a step's input."""
        try:
            packed = Inline().pack(outcome).as_json()
        except Unstorable as error:
            raise QtideError(
                f"the result of the phase «{given.phase.label}» cannot be stored: {error}; "
                "return plain data or arrays"
            ) from None
        entries = [span._asdict() for span in spans]
        kind = given.phase.kind
        return StepOutput(given.key, given.place, given.asked, packed, failed, entries, log, kind)

    def write(self, folder: Path) -> Path:
        """Write it to a file that is named like the step's input."""
        file = folder / f"answer-{self.key}-{self.place}-{self.kind}.json"
        write_json(file, asdict(self))
        return file

    @staticmethod
    def read(file: Path) -> StepOutput:
        """Read what `write` wrote."""
        return StepOutput(**read_json(file))

    def counted(self) -> StepOutput:
        """Return the same answer for the next turn, which does not count it again."""
        return replace(self, spans=[], log="", kept=True)

    def value(self) -> Any:
        """Return the result; raise the exception if the step failed."""
        found = Inline().unpack(Packed.from_json(self.outcome))
        if self.failed:
            raise found
        return found

    def intervals(self) -> list[Interval]:
        """Return what was held and used for it, and when."""
        return [Interval(**span) for span in self.spans]


def _pack(phase: Phase) -> dict[str, Any]:
    """Pack functions as code, if need be; some vendors' payloads take only plain pickle."""
    try:
        return Inline().pack(phase, by_value=True).as_json()
    except Unstorable:
        return Inline().pack(phase).as_json()
