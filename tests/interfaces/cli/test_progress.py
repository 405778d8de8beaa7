"""Progress is told in the run's own seconds, whatever a second of it takes."""

from __future__ import annotations

import io
import sys
from errno import EIO

import pytest
from rich.console import Console

from qtide.interfaces.progress import TerminalProgress
from qtide.programs.phase import quantum
from qtide.programs.replay import ReplayStep

PHASE = quantum(None)


def test_virtual_seconds_are_those_of_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TerminalProgress(None, lines=True, scale=None)
    with progress.shown():
        progress.tell("it", ReplayStep("begun", "1", PHASE), 40.0)
        progress.tell("it", ReplayStep("done", "1", PHASE), 160.5)
    assert capsys.readouterr().err == "it, 120.5 s: quantum NoneType, done in 120.50 s\n"


def test_the_live_line_goes_on_between_two_steps() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    progress = TerminalProgress(console, lines=True, scale=0.001)
    progress.entitle("1 of 2")
    progress.tell("it", ReplayStep("begun", "1", PHASE), 0.0)
    first = progress.elapsed
    while progress.elapsed <= first:
        continue
    assert str(progress.__rich__()).startswith("1 of 2: ")
    assert str(progress.__rich__()).endswith(" s, 0 phases: quantum NoneType")


def test_what_comes_from_the_journal_is_counted() -> None:
    text = io.StringIO()
    progress = TerminalProgress(Console(file=text, width=80), lines=True)
    progress.tell("it", ReplayStep("replayed", "1", PHASE), 0.0)
    progress.tell("it", ReplayStep("begun", "2", PHASE), 0.0)
    progress.tell("it", ReplayStep("done", "2", PHASE), 1.0)
    assert "it: 1 phase from the journal" in text.getvalue()


class NobodyReads(io.StringIO):
    """A terminal that is gone."""

    def write(self, text: str) -> int:
        raise OSError(EIO, text)


def test_a_run_goes_on_if_nobody_reads_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", NobodyReads())
    for console in (None, Console(stderr=True)):
        TerminalProgress(console, lines=True).ended("run", "classical f, done")
