"""Files passed between the steps of a workflow: a phase to run, and its answer.

A step may run anywhere, so these files never refer to the run's folder.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qtide.core.errors import QtideError
from qtide.core.files import read_json, write_json, write_whole
from qtide.core.ledger import Interval
from qtide.core.values import Inline, Packed, Unstorable
from qtide.programs.command import CommandResult
from qtide.programs.phase import Phase
from qtide.runs.spec import Spec


@dataclass(frozen=True)
class StepInput:
    """One task (as its own phase) or one payload, with everything its step needs."""

    run: str
    key: str
    place: int
    """Index of the task in its phase."""
    phase: Phase
    asked: float
    """Time at which the program requested it, on the run's clock."""
    spec: Spec

    def write(self, folder: Path) -> Path:
        """Write the input to a file named by its position in the program."""
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
        """Read what `write` wrote; extend `sys.path` so that the program's modules are found."""
        entry = read_json(file)
        sys.path += [folder for folder in entry.pop("path") if folder not in sys.path]
        phase, spec = entry.pop("phase"), entry.pop("spec")
        return StepInput(**entry, phase=Inline().unpack(Packed.from_json(phase)), spec=Spec(**spec))


@dataclass(frozen=True)
class StepOutput:
    """The answer of a step: result or exception, resources held, and printed output."""

    key: str
    place: int
    asked: float
    outcome: dict[str, Any]
    failed: bool = False
    spans: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    kind: str = "classical"
    """Kind of the phase; tells a failed payload from its replacement task at the same place."""
    kept: bool = False
    """Whether an earlier turn of the workflow already counted it."""

    @staticmethod
    def to(
        given: StepInput, outcome: Any, spans: list[Interval], log: str, *, failed: bool = False
    ) -> StepOutput:
        """Build the answer to a step's input."""
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
        """Write the answer to a file named like the step's input."""
        file = folder / f"answer-{self.key}-{self.place}-{self.kind}.json"
        write_json(file, asdict(self))
        return file

    @staticmethod
    def read(file: Path) -> StepOutput:
        """Read what `write` wrote."""
        return StepOutput(**read_json(file))

    def counted(self) -> StepOutput:
        """Return the answer for the next turn, which must not count it again."""
        return replace(self, spans=[], log="", kept=True)

    def value(self) -> Any:
        """Return the result; raise the exception if the step failed."""
        found = Inline().unpack(Packed.from_json(self.outcome))
        if self.failed:
            raise found
        return found

    def intervals(self) -> list[Interval]:
        """Return the intervals of what was held and used for it."""
        return [Interval(**span) for span in self.spans]


MOST = 64 * 2**20
"""Maximum bytes of the files of a command that an answer carries."""


@dataclass(frozen=True)
class CarriedFiles:
    """The result of a command with the contents of its files, which may be on another host."""

    result: CommandResult
    contents: dict[str, bytes]

    @staticmethod
    def of(outcome: Any) -> Any:
        """Add the contents of its files to the result of a command; leave others as they are."""
        if not isinstance(outcome, CommandResult) or not outcome.files:
            return outcome
        if sum(file.stat().st_size for file in outcome.files.values()) > MOST:
            raise QtideError(
                f"a command wrote more than {MOST:,} bytes ({', '.join(outcome.files)}), which no "
                "step of a workflow can pass on; run the program with qtide itself"
            )
        contents = {name: file.read_bytes() for name, file in outcome.files.items()}
        return CarriedFiles(outcome, contents)

    def unpacked(self, folder: Path) -> CommandResult:
        """Write the files to a folder of the run, unless an earlier turn has; return the result."""
        files = {name: folder / name for name in self.contents}
        for name, file in files.items():
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(file, self.contents[name])
        return replace(self.result, files=files, folder=folder)


def _pack(phase: Phase) -> dict[str, Any]:
    """Pack functions by value; fall back to plain pickle, which some vendors' payloads need."""
    try:
        return Inline().pack(phase, by_value=True).as_json()
    except Unstorable:
        return Inline().pack(phase).as_json()
