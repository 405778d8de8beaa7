"""The turns of a workflow, played without an engine: they give what `qtide run` gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qtide.core.errors import UsageError
from qtide.core.files import read_json
from qtide.interfaces.export.advance import advance
from qtide.interfaces.export.cwl import export_cwl
from qtide.interfaces.export.step import perform_classical, perform_quantum
from qtide.interfaces.export.step_files import StepInput
from qtide.interfaces.export.turn_note import result_of
from qtide.runs.driver import play
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.runs.start import create

PROGRAMS = Path(__file__).with_name("programs.py")
TURNS = 30


def spec_of(name: str, *words: str) -> Spec:
    return Spec(f"{PROGRAMS}:{name}", list(words), strategy="workflow", qpu="burst", seed=7)


class Loop:
    """What an engine does, in one process."""

    def __init__(self, run: RunFolder, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.journal = run.journal
        self.answers: list[Path] = []
        self.turns = 0

    def turn(self) -> dict[str, Any] | None:
        """Advance the program and run what it asks for; how it ended, if it did."""
        place = self._place("advance")
        said = advance(self.run, self.journal, self.answers, place)
        self.journal, self.answers = said["grown"], list(said["kept"])
        if not said["unfinished"]:
            return read_json(said["outcome"])
        for file in said["tasks"]:
            here = self._place(file.stem)
            self.answers.append(perform_classical(StepInput.read(file), here).write(here))
        if said["payloads"]:
            here = self._place("quantum")
            found = perform_quantum([StepInput.read(file) for file in said["payloads"]], here)
            self.answers += [each.write(here) for each in found]
        self.turns += 1
        return None

    def end(self) -> dict[str, Any]:
        for _ in range(TURNS):
            if (ended := self.turn()) is not None:
                return ended
        raise AssertionError("the workflow does not end")

    def _place(self, name: str) -> Path:
        place = self.folder / f"{self.turns}-{name}"
        place.mkdir(parents=True)
        return place


def test_turns_give_what_a_run_gives(tmp_path: Path) -> None:
    expected = play(create(spec_of("everything"), tmp_path, "plain"), lambda *_: None).value
    run = export_cwl(spec_of("everything"), tmp_path / "exported")
    assert result_of(Loop(run, tmp_path / "steps").end()) == expected
    assert run.state == "done"
    assert run.value == expected
    plain = {line.split(b'"outcome"')[0][9:] for line in _lines(tmp_path / "plain")}
    assert {line.split(b'"outcome"')[0][9:] for line in _lines(run.path)} == plain
    spans = run.intervals()
    assert {span.what for span in spans} >= {"run", "phase", "held", "busy", "wait"}
    assert len([span for span in spans if span.what == "phase"]) == run.finished_phases
    assert "squaring 3" in run.log.read_text()


def test_a_payload_that_fails_is_replaced_by_its_equivalent(tmp_path: Path) -> None:
    expected = play(create(spec_of("either"), tmp_path, "plain"), lambda *_: None).value
    run = export_cwl(spec_of("either"), tmp_path / "exported")
    assert result_of(Loop(run, tmp_path / "steps").end()) == expected == [5, 6, 49]
    phases = [span.lane for span in run.intervals() if span.what == "phase"]
    assert phases == ["quantum", "quantum", "classical"]
    chosen = [(each.what, each.lane) for each in run.notes()]
    taken = [("chose the qpu", f"phase/{n}") for n in (1, 2, 3)]
    assert chosen == [*taken, ("chose the task", "phase/3")]
    again = Loop(run, tmp_path / "again")
    assert result_of(again.end()) == expected
    assert again.turns == 0


def test_a_workflow_that_was_stopped_continues_by_its_journal(tmp_path: Path) -> None:
    run = export_cwl(spec_of("everything"), tmp_path / "exported")
    first = Loop(run, tmp_path / "first")
    while run.finished_phases < 3:
        first.turn()
    kept = run.journal.read_bytes()
    second = Loop(run, tmp_path / "second")
    second.end()
    assert run.journal.read_bytes().startswith(kept)
    assert run.state == "done"
    whole = Loop(export_cwl(spec_of("everything"), tmp_path / "whole"), tmp_path / "third")
    whole.end()
    assert second.turns < whole.turns


def test_a_failure_that_is_not_caught_ends_the_workflow_and_is_not_journaled(
    tmp_path: Path,
) -> None:
    run = export_cwl(spec_of("everything", "--boom"), tmp_path / "exported")
    ended = Loop(run, tmp_path / "steps").end()
    with pytest.raises(ValueError, match="no 5"):
        result_of(ended)
    assert run.state == "failed"
    assert "in the task refuse" in str(run.end)
    phases = run.finished_phases
    assert "no 5" in Loop(run, tmp_path / "again").end()["error"]
    assert run.finished_phases == phases


def test_a_turn_that_is_repeated_counts_once(tmp_path: Path) -> None:
    run = export_cwl(spec_of("everything"), tmp_path / "exported")
    loop = Loop(run, tmp_path / "steps")
    loop.turn()
    given = loop.journal, loop.answers
    for name in ("once", "twice"):
        (tmp_path / name).mkdir()
        advance(run, *given, tmp_path / name)
    assert run.finished_phases == 1


def test_what_cannot_be_serialised_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unsendable cannot be exported: .*cannot be pickled"):
        export_cwl(spec_of("unsendable"), tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        export_cwl(spec_of("everything"), PROGRAMS.parent)


def test_virtual_time_is_refused(tmp_path: Path) -> None:
    spec = Spec("synthetic", cluster="simulated")
    with pytest.raises(UsageError, match="virtual time"):
        export_cwl(spec, tmp_path / "exported")


def _lines(folder: Path) -> list[bytes]:
    return (folder / "journal").read_bytes().splitlines()
