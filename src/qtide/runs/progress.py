"""Progress of a run that Python started: in a notebook, a line that changes; in a script, none."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from qtide.programs.replay import Step
from qtide.runs.driver import Tell
from qtide.runs.spec import Spec

PAUSE = 0.1
"""Seconds between two changes of the line."""


@contextmanager
def progress(spec: Spec) -> Iterator[Tell]:
    """What is to be told of each step of a run."""
    handle = _display(f"{spec.strategy} on {spec.cluster}: starting")
    if handle is None:
        yield lambda *_: None
        return
    line = Line(handle)
    try:
        yield line.tell
    finally:
        line.show(line.summary)


class Line:
    """Counts the phases that have ended, and says what is going on."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._done = 0
        self._replayed = 0
        self._doing: dict[tuple[str, str], str] = {}
        self._shown = 0.0
        self._first: float | None = None
        self._last = 0.0

    def tell(self, run: str, step: Step, at: float) -> None:
        """A step of a run, and when it was, on the run's clock."""
        self._first = at if self._first is None else self._first
        self._last = at
        if step.state == "begun":
            self._doing[run, step.key] = f"{step.phase.kind} {step.phase.label}"
        else:
            self._doing.pop((run, step.key), None)
            self._done += 1
            self._replayed += step.state == "replayed"
        if time.monotonic() > self._shown + PAUSE:
            self.show(f"{self.summary}: {', '.join(self._doing.values())}")

    @property
    def summary(self) -> str:
        """How far it is."""
        kept = f", {self._replayed:,} of them from the journal" if self._replayed else ""
        return f"{self._last - (self._first or 0.0):,.1f} s, {self._done:,} phases{kept}"

    def show(self, text: str) -> None:
        """Replace the line."""
        self._shown = time.monotonic()
        self._handle.update(_html(text), raw=True)


def _display(text: str) -> Any:
    """The line's place in a notebook; None if this is not one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display(_html(text), raw=True, display_id=True)  # type: ignore[no-untyped-call]


def _html(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
