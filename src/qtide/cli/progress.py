"""Progress of runs: a live line on a terminal, plain lines in a log. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from qtide.programs.replay import Step

WORDS = {"done": "done", "failed": "failed", "replayed": "from the journal"}


class Progress:
    """Hears of steps and shows them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None
        self._running: dict[tuple[str, str], str] = {}
        self._began: dict[tuple[str, str], float] = {}
        self._replayed = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While within, the live line is there."""
        if self._status is None:
            yield
        else:
            with self._status:
                yield

    def tell(self, title: str, run: str, step: Step) -> None:
        """A step of a run; `title` stands before it."""
        place = (run, step.key)
        if step.state == "begun":
            self._running[place] = f"{step.phase.kind} {step.phase.label}"
            self._began[place] = time.monotonic()
        elif step.state == "replayed":
            self._replayed += 1
            return
        else:
            self._end(title, run, step)
        if self._status is not None:
            doing = ", ".join(f"{run}: {text}" for (run, _), text in self._running.items())
            self._status.update(escape(f"{title} {doing}"))

    def note(self, text: str) -> None:
        """A line that stays."""
        self._console.print(escape(text), highlight=False)

    def _end(self, title: str, run: str, step: Step) -> None:
        if self._replayed:
            self.note(f"{title} {run}: {self._replayed} phases from the journal")
            self._replayed = 0
        text = self._running.pop((run, step.key))
        seconds = time.monotonic() - self._began.pop((run, step.key))
        self.note(f"{title} {run}: {text}, {WORDS[step.state]} in {seconds:.2f} s".strip())
