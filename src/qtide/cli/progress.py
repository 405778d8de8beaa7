"""Progress of runs: a live line on a terminal, plain lines in a log. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from qtide.programs.replay import Step

Place = tuple[str, str]
"""A run and the key of a phase."""


class Progress:
    """Listens to steps; shows what is running, and prints a line per phase if `lines`.

    All times are the runs' own seconds. `scale` says how long one of them takes; without it time is
    virtual, and passes only from step to step.
    """

    def __init__(self, console: Console, *, lines: bool, scale: float | None = 1.0) -> None:
        self._console = console
        self._lines = lines
        self._scale = scale
        self._status = console.status("starting") if console.is_terminal else None
        self._title = ""
        self._began: dict[Place, tuple[str, float]] = {}
        self._replayed = 0
        self._start = time.monotonic()
        self._first: float | None = None
        self._last = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the live line inside the block; it is drawn anew several times a second."""
        self._restart()
        if self._status is None:
            yield
        else:
            self._status.update(self)
            with self._status:
                yield

    def entitle(self, title: str) -> None:
        """Set what the next steps belong to; their time begins now."""
        self._title = title
        self._restart()

    def tell(self, run: str, step: Step, at: float) -> None:
        """A step of a run, and when it was, on the run's clock."""
        self._first = at if self._first is None else self._first
        self._last = at
        place = (run, step.key)
        if step.state == "begun":
            self._began[place] = (f"{step.phase.kind} {step.phase.label}", at)
        elif step.state == "replayed":
            self._replayed += 1
        else:
            what, began = self._began.pop(place)
            self._end(run, f"{what}, {step.state} in {at - began:,.2f} s")

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(escape(text), highlight=False)

    @property
    def elapsed(self) -> float:
        """The run's own seconds since its start."""
        if self._scale is None:
            return self._last - (self._first or 0.0)
        return (time.monotonic() - self._start) / self._scale

    def __rich__(self) -> Text:
        """The live line."""
        doing = ", ".join(f"{run}: {what}" for (run, _), (what, _) in self._began.items())
        return Text(" ".join(filter(None, (self._title, f"{self.elapsed:,.0f} s", doing))))

    def _restart(self) -> None:
        self._start = time.monotonic()
        self._first = None
        self._last = 0.0

    def _end(self, run: str, text: str) -> None:
        if self._lines:
            if self._replayed:
                self.note(f"{run}: {_phases(self._replayed)} from the journal")
            self.note(f"{run}, {self.elapsed:,.1f} s: {text}")
        self._replayed = 0


def _phases(number: int) -> str:
    return "1 phase" if number == 1 else f"{number:,} phases"
