"""Progress of runs: a live line on a terminal, plain lines in a log. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from qtide.programs.replay import Step

Place = tuple[str, str]
"""A run and the key of a phase."""


class Progress:
    """Listens to steps; shows what is running, and prints a line per phase if `lines`."""

    def __init__(self, console: Console, *, lines: bool) -> None:
        self._console = console
        self._lines = lines
        self._status = console.status("starting") if console.is_terminal else None
        self._title = ""
        self._began: dict[Place, tuple[str, float]] = {}
        self._replayed = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the live line inside the block."""
        if self._status is None:
            yield
        else:
            with self._status:
                yield

    def entitle(self, title: str) -> None:
        """Set what the next steps belong to."""
        self._title = title

    def tell(self, run: str, step: Step) -> None:
        """A step of a run."""
        place = (run, step.key)
        if step.state == "begun":
            self._began[place] = (f"{step.phase.kind} {step.phase.label}", time.monotonic())
        elif step.state == "replayed":
            self._replayed += 1
        else:
            self._end(run, step, *self._began.pop(place))
        self._refresh()

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._console.print(escape(text), highlight=False)

    def _end(self, run: str, step: Step, what: str, began: float) -> None:
        if self._replayed and self._lines:
            self.note(f"{run}: {self._replayed} phases from the journal")
        self._replayed = 0
        if self._lines:
            self.note(f"{run}: {what}, {step.state} in {time.monotonic() - began:.2f} s")

    def _refresh(self) -> None:
        if self._status is not None:
            doing = ", ".join(f"{run}: {what}" for (run, _), (what, _) in self._began.items())
            self._status.update(escape(f"{self._title} {doing}"))
