"""Notes of a workflow's progress: each turn of its loop leaves one in the run's folder.

Whoever holds the run's journal takes them in: qtide, if it started the engine, otherwise the step
that wrote the note. So a run that an engine drives can be shown, reported and resumed like any
other, and a turn that the engine repeats is counted once.
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
from qtide.interfaces.export.parcel import StepOutput
from qtide.programs.journal import Journal, JournalRecord
from qtide.programs.replay import ReplayStep
from qtide.runs.driver import plain, sentence
from qtide.runs.folder import RunFolder

FOLDER = "engine"
"""What belongs to the engine, in the run's folder."""


@dataclass(frozen=True)
class Told:
    """A step of the program, and what is told of its phase."""

    state: Literal["begun", "done", "failed", "replayed"]
    key: str
    kind: str
    label: str

    @staticmethod
    def of(step: ReplayStep) -> Told:
        """A step of a replay, without its phase."""
        return Told(step.state, step.key, step.phase.kind, step.phase.label)


@dataclass(frozen=True)
class Chosen:
    """What was chosen for a phase, the QPU or its classical equivalent, and why."""

    what: str
    lane: str
    why: str


@dataclass(frozen=True)
class TurnNote:
    """One turn: how the program went on, and what the steps before had held."""

    before: int
    """How many phases the journal had: which turn it is."""
    during: tuple[float, float]
    steps: Sequence[Told]
    records: Sequence[JournalRecord]
    answers: Sequence[StepOutput]
    outcome: dict[str, Any] | None = None
    choices: Sequence[Chosen] = ()

    def publish(self, run: RunFolder, program: str) -> None:
        """Leave it in the run's folder; if nobody follows the run, take it in at once."""
        folder = notes_of(run)
        folder.mkdir(parents=True, exist_ok=True)
        answers = [asdict(each) | {"outcome": {}} for each in self.answers]
        entry = asdict(self) | {"answers": answers}
        write_json(folder / f"{self.before:06}.json", entry)
        if run.state != "running":
            take_in_alone(run, program)

    @staticmethod
    def read(file: Path) -> TurnNote:
        """Read what `publish` wrote."""
        entry = read_json(file)
        return TurnNote(
            entry["before"],
            entry["during"],
            [Told(**each) for each in entry["steps"]],
            [JournalRecord(**each) for each in entry["records"]],
            [StepOutput(**each) for each in entry["answers"]],
            entry["outcome"],
            [Chosen(**each) for each in entry["choices"]],
        )

    def take_in(self, journal: Journal, ledger: Ledger, run: RunFolder) -> None:
        """Let the run know what it says: its journal, then its ledger and its log."""
        journal.extend([each for each in self.records if journal.find(each.key) != each])
        for chosen in self.choices:
            ledger.explain(chosen.what, chosen.lane, chosen.why)
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


def notes_of(run: RunFolder) -> Path:
    """The folder of notes that nobody has taken in yet."""
    return run.path / FOLDER / "notes"


def take_in(
    run: RunFolder, journal: Journal, ledger: Ledger, tell: Callable[[TurnNote], None]
) -> dict[str, Any] | None:
    """Take in all notes there are, the oldest first; how the run ended, if it did."""
    outcome = None
    for file in sorted(notes_of(run).glob("*.json")):
        note = TurnNote.read(file)
        note.take_in(journal, ledger, run)
        file.unlink()
        tell(note)
        outcome = note.outcome or outcome
    return outcome


def take_in_alone(run: RunFolder, program: str) -> None:
    """The same without a driver: each turn is a driver of its own, for as long as it lasts."""
    spec = run.spec
    clock = RealWorld(spec.time_scale)

    def lasted(note: TurnNote) -> None:
        began = min((each.asked for each in note.answers), default=note.during[0])
        ledger.enter("run", "driver", began, note.during[1], spec.strategy)

    with (
        closing(Journal(run.journal, program)) as journal,
        closing(Ledger(run.name, clock.now, run.ledger)) as ledger,
    ):
        run.unfinish()
        outcome = take_in(run, journal, ledger, lasted)
        if outcome is not None:
            finish(run, outcome)


def finish(run: RunFolder, outcome: dict[str, Any]) -> None:
    """Write how a run ended."""
    if "error" in outcome:
        run.finish({"error": outcome["error"]})
        return
    run.keep_value(result_of(outcome))
    run.finish({"value": outcome["value"]})


def result_of(outcome: dict[str, Any]) -> Any:
    """What the program returned; raises what it raised."""
    found = Inline().unpack(Packed.from_json(outcome["packed"])) if "packed" in outcome else None
    if "error" in outcome:
        raise found if isinstance(found, Exception) else QtideError(outcome["error"])
    return found if "packed" in outcome else outcome["value"]


def outcome_of(value: Any = None, error: Exception | None = None) -> dict[str, Any]:
    """How a program ended, as JSON: what anybody can read, and what Python had."""
    told = {"value": plain(value)} if error is None else {"error": sentence(error)}
    with suppress(Unstorable):
        return told | {"packed": Inline().pack(value if error is None else error).as_json()}
    return told
