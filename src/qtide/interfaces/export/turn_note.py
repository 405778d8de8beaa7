"""Notes on a workflow's progress: each turn of its loop leaves one in the run's folder.

If qtide started the engine, qtide merges the notes into the run's journal, ledger and log;
otherwise, the step that wrote the note does. So a run driven by an engine can be shown, reported
and resumed like any other, and a turn that the engine repeats counts only once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from qtide.core.errors import QtideError
from qtide.core.files import read_json, write_json
from qtide.core.ledger import Interval, Ledger
from qtide.core.values import Inline, Packed, Unstorable
from qtide.core.world.real import RealWorld
from qtide.interfaces.export.step_files import StepOutput
from qtide.programs.journal import Journal, JournalRecord
from qtide.programs.replay import ReplayStep
from qtide.runs.driver import plain, sentence
from qtide.runs.folder import RunFolder

ENGINE_FOLDER = "engine"
"""The engine's folder within the folder of a run."""


@dataclass(frozen=True)
class TurnNote:
    """One turn: the program's progress, and what the preceding steps held."""

    before: int
    """Number of phases in the journal before the turn; identifies the turn."""
    during: tuple[float, float]
    """Start and end of the turn."""
    steps: Sequence[NotedStep]
    records: Sequence[JournalRecord]
    answers: Sequence[StepOutput]
    outcome: dict[str, Any] | None = None
    choices: Sequence[NotedChoice] = ()

    def publish(self, run: RunFolder, program: str) -> None:
        """Write the note to the run's folder; merge it at once if no driver follows the run."""
        folder = _notes_of(run)
        folder.mkdir(parents=True, exist_ok=True)
        answers = [asdict(each) | {"outcome": {}} for each in self.answers]
        entry = asdict(self) | {"answers": answers}
        write_json(folder / f"{self.before:06}.json", entry)
        if run.state != "running":
            _merge_without_driver(run, program)

    @staticmethod
    def read(file: Path) -> TurnNote:
        """Read what `publish` wrote."""
        entry = read_json(file)
        return TurnNote(
            entry["before"],
            entry["during"],
            [NotedStep(**each) for each in entry["steps"]],
            [JournalRecord(**each) for each in entry["records"]],
            [StepOutput(**each) for each in entry["answers"]],
            entry["outcome"],
            [NotedChoice(**each) for each in entry["choices"]],
        )

    def merge(self, journal: Journal, ledger: Ledger, run: RunFolder) -> None:
        """Add the note to the run's journal, then to its ledger and log."""
        journal.extend([each for each in self.records if journal.find(each.key) != each])
        for choice in self.choices:
            ledger.explain(choice.what, choice.lane, choice.why)
        for span in self._spans():
            ledger.enter(span.what, span.lane, span.start, span.end, span.label)
        log = "".join(each.log for each in self.answers)
        if log:
            with suppress(OSError), run.log.open("a") as opened:
                opened.write(log)

    def _spans(self) -> list[Interval]:
        fresh = [each for each in self.answers if not each.kept]
        asked = {each.key: (each.kind, each.asked) for each in fresh}
        ended = [each for each in self.steps if each.state != "begun" and each.key in asked]
        phases = [
            Interval("", "phase", *asked[each.key], self.during[0], each.label) for each in ended
        ]
        return phases + [span for each in fresh for span in each.intervals()]


@dataclass(frozen=True)
class NotedStep:
    """A step of the replay, with the kind and label of its phase."""

    state: Literal["begun", "done", "failed", "replayed"]
    key: str
    kind: str
    label: str

    @staticmethod
    def of(step: ReplayStep) -> NotedStep:
        """Convert a step of a replay, dropping the phase itself."""
        return NotedStep(step.state, step.key, step.phase.kind, step.phase.label)


@dataclass(frozen=True)
class NotedChoice:
    """The choice for a phase (the QPU or its classical equivalent) and the reason."""

    what: str
    lane: str
    why: str


def merge_notes(
    run: RunFolder, journal: Journal, ledger: Ledger, tell: Callable[[TurnNote], None]
) -> dict[str, Any] | None:
    """Merge all present notes, oldest first; return the run's outcome if it has ended."""
    outcome = None
    for file in sorted(_notes_of(run).glob("*.json")):
        note = TurnNote.read(file)
        note.merge(journal, ledger, run)
        file.unlink()
        tell(note)
        outcome = note.outcome or outcome
    return outcome


def _merge_without_driver(run: RunFolder, program: str) -> None:
    """Merge the notes of a run without a driver; the ledger records each turn as a driver."""
    spec = run.spec
    clock = RealWorld(spec.time_scale)

    def enter_driver(note: TurnNote) -> None:
        began = min((each.asked for each in note.answers), default=note.during[0])
        ledger.enter("run", "driver", began, note.during[1], spec.strategy)

    with (
        closing(Journal(run.journal, program)) as journal,
        closing(Ledger(run.name, clock.now, run.ledger)) as ledger,
    ):
        run.unfinish()
        outcome = merge_notes(run, journal, ledger, enter_driver)
        if outcome is not None:
            finish(run, outcome)


def _notes_of(run: RunFolder) -> Path:
    return run.path / ENGINE_FOLDER / "notes"


def finish(run: RunFolder, outcome: dict[str, Any]) -> None:
    """Write how a run ended."""
    if "error" in outcome:
        run.finish({"error": outcome["error"]})
        return
    run.keep_value(result_of(outcome))
    run.finish({"value": outcome["value"]})


def outcome_of(value: Any = None, error: Exception | None = None) -> dict[str, Any]:
    """Describe in JSON how a program ended: readable for people, and packed for Python."""
    told = {"value": plain(value)} if error is None else {"error": sentence(error)}
    with suppress(Unstorable):
        return told | {"packed": Inline().pack(value if error is None else error).as_json()}
    return told


def result_of(outcome: dict[str, Any]) -> Any:
    """Return the program's result or raise its exception."""
    found = Inline().unpack(Packed.from_json(outcome["packed"])) if "packed" in outcome else None
    if "error" in outcome:
        raise found if isinstance(found, Exception) else QtideError(outcome["error"])
    return found if "packed" in outcome else outcome["value"]
