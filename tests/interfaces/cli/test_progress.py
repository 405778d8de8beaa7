"""Progress is told in the run's own seconds, whatever a second of it takes."""

from __future__ import annotations

import io

from rich.console import Console

from qtide.interfaces.progress import TerminalProgress
from qtide.programs.phase import quantum
from qtide.programs.replay import ReplayStep

PHASE = quantum(None)


def told(scale: float | None, terminal: bool = False) -> tuple[TerminalProgress, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80)
    return TerminalProgress(console, lines=True, scale=scale), text


def test_virtual_seconds_are_those_of_the_steps() -> None:
    progress, text = told(None)
    with progress.shown():
        progress.tell("it", ReplayStep("begun", "1", PHASE), 40.0)
        progress.tell("it", ReplayStep("done", "1", PHASE), 160.5)
    assert "it, 120.5 s: quantum" in text.getvalue()
    assert "done in 120.50 s" in text.getvalue()


def test_the_live_line_goes_on_between_two_steps() -> None:
    progress, _ = told(0.001, terminal=True)
    progress.entitle("1 of 2")
    progress.tell("it", ReplayStep("begun", "1", PHASE), 0.0)
    first = progress.elapsed
    while progress.elapsed <= first:
        continue
    assert str(progress.__rich__()).startswith("1 of 2: ")
    assert str(progress.__rich__()).endswith(" s, 0 phases: quantum NoneType")


def test_what_comes_from_the_journal_is_counted() -> None:
    progress, text = told(1.0)
    progress.tell("it", ReplayStep("replayed", "1", PHASE), 0.0)
    progress.tell("it", ReplayStep("begun", "2", PHASE), 0.0)
    progress.tell("it", ReplayStep("done", "2", PHASE), 1.0)
    assert "it: 1 phase from the journal" in text.getvalue()
