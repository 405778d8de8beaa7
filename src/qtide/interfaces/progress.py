"""Progress of a run that Python started: in a notebook, a line that changes; in a script, none."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from qtide.programs.replay import ReplayStep
from qtide.runs.driver import Tell
from qtide.runs.spec import Spec

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

    def tell(self, run: str, step: ReplayStep, at: float) -> None:
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


PAUSE = 0.1
"""Seconds between two changes of the line."""
MOST = 3
"""Phases that are shown at once."""


@contextmanager
def progress(spec: Spec) -> Iterator[Tell]:
    """What is to be told of each step of a run."""
    handle = _display(f"{spec.strategy} on {spec.cluster}: starting")
    if handle is None:
        yield lambda *_: None
        return
    with ProgressLine(handle) as line:
        yield line.tell


class ProgressLine:
    """Counts the phases that have ended, and says what is going on; a thread keeps it up to date.

    There may be thousands of steps per second, and the last one before a long phase must be seen.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._done = 0
        self._replayed = 0
        self._doing: dict[tuple[str, str], str] = {}
        self._shown = ""
        self._first: float | None = None
        self._last = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, daemon=True)

    def __enter__(self) -> ProgressLine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._show(self.summary)

    def tell(self, run: str, step: ReplayStep, at: float) -> None:
        """A step of a run, and when it was, on the run's clock."""
        self._first = at if self._first is None else self._first
        self._last = at
        if step.state == "begun":
            self._doing[run, step.key] = f"{step.phase.kind} {step.phase.label}"
        else:
            self._doing.pop((run, step.key), None)
            self._done += 1
            self._replayed += step.state == "replayed"

    @property
    def summary(self) -> str:
        """How far it is."""
        phases = "1 phase" if self._done == 1 else f"{self._done:,} phases"
        kept = f", {self._replayed:,} of them from the journal" if self._replayed else ""
        return f"{self._last - (self._first or 0.0):,.1f} s, {phases}{kept}"

    def _keep_up(self) -> None:
        while not self._over.wait(PAUSE):
            if self._first is not None:
                doing = list(self._doing.values())
                more = [f"and {len(doing) - MOST:,} more"] if len(doing) > MOST else []
                self._show(": ".join(filter(None, (self.summary, ", ".join(doing[:MOST] + more)))))

    def _show(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            self._handle.update(_html(text), raw=True)


def _display(text: str) -> Any:
    """The line's place in a notebook; None if this is not one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display(_html(text), raw=True, display_id=True)  # type: ignore[no-untyped-call]


def _html(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
