"""What travels between the steps of a workflow, each in one file: a phase to run, and its answer.

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
    """A task, as a phase of its own, or a payload, with all that its step has to know."""

    run: str
    key: str
    place: int
    """Which task of its phase it is."""
    phase: Phase
    asked: float
    """When the program asked for it, on the run's clock."""
    spec: Spec

    def write(self, folder: Path) -> Path:
        """Write it to a file that is named by its place in the program."""
        try:
            packed = _sendable(self.phase)
        except Unstorable as error:
            raise QtideError(
                f"phase {self.key} of {self.run} cannot be sent to a step: {error}; give tasks "
                "and payloads plain data, arrays or a path"
            ) from None
        file = folder / f"phase-{self.key}-{self.place}.json"
        own = {"run": self.run, "key": self.key, "place": self.place, "asked": self.asked}
        path = [str(Path(place).absolute()) for place in sys.path]
        write_json(file, own | {"phase": packed, "spec": asdict(self.spec), "path": path})
        return file

    @staticmethod
    def read(file: Path) -> StepInput:
        """Read what `write` wrote; from now on, modules are looked for where the program did."""
        entry = read_json(file)
        sys.path += [place for place in entry.pop("path") if place not in sys.path]
        phase, spec = entry.pop("phase"), entry.pop("spec")
        return StepInput(**entry, phase=Inline().unpack(Packed.from_json(phase)), spec=Spec(**spec))


@dataclass(frozen=True)
class StepOutput:
    """What became of a parcel: a result or an exception, what was held for it, what it printed."""

    key: str
    place: int
    asked: float
    outcome: dict[str, Any]
    failed: bool = False
    spans: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    kind: str = "classical"
    """Of the phase: a place may have a payload and, since that failed, a task in its stead."""
    kept: bool = False
    """Whether an earlier turn of the workflow had it already."""

    @staticmethod
    def to(
        parcel: StepInput, outcome: Any, spans: list[Interval], log: str, *, failed: bool = False
    ) -> StepOutput:
        """The answer to a parcel."""
        packed = _packed(outcome, parcel)
        told = [span._asdict() for span in spans]
        kind = parcel.phase.kind
        return StepOutput(parcel.key, parcel.place, parcel.asked, packed, failed, told, log, kind)

    def write(self, folder: Path) -> Path:
        """Write it to a file that is named like its parcel's."""
        file = folder / f"answer-{self.key}-{self.place}-{self.kind}.json"
        write_json(file, asdict(self))
        return file

    @staticmethod
    def read(file: Path) -> StepOutput:
        """Read what `write` wrote."""
        return StepOutput(**read_json(file))

    def again(self) -> StepOutput:
        """The same for the next turn, which does not count it twice."""
        return replace(self, spans=[], log="", kept=True)

    def value(self) -> Any:
        """The result, or the exception."""
        return Inline().unpack(Packed.from_json(self.outcome))

    def intervals(self) -> list[Interval]:
        """What was held for it, and used, and when."""
        return [Interval(**span) for span in self.spans]


def _sendable(phase: Phase) -> dict[str, Any]:
    """With functions as code, if need be; some vendors' payloads take only plain pickle."""
    try:
        return Inline().pack(phase, by_value=True).as_json()
    except Unstorable:
        return Inline().pack(phase).as_json()


def _packed(outcome: Any, parcel: StepInput) -> dict[str, Any]:
    try:
        return Inline().pack(outcome).as_json()
    except Unstorable as error:
        raise QtideError(
            f"the result of the phase «{parcel.phase.label}» cannot be stored: {error}; "
            "return plain data or arrays"
        ) from None
