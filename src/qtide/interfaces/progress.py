"""The progress of runs: a live line on a terminal or in a notebook."""

from __future__ import annotations

import html
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from qtide.core.log import printable
from qtide.programs.replay import ReplayStep
from qtide.runs.driver import Tell
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MOST = 3
"""Maximum number of phases shown at once."""


def scale_of(spec: Spec) -> float | None:
    """Return the real seconds per second of a run; None in virtual time."""
    return None if is_virtual(spec) else spec.time_scale


class ProgressLine:
    """Counts phases and tracks the running ones; displays show it as a line of text.

    All times are in the runs' own seconds. `scale` is the number of real seconds per such second;
    if it is None, time is virtual and passes only from step to step.
    """

    def __init__(self, scale: float | None = None) -> None:
        self.title = ""
        self._scale = scale
        self._began: dict[tuple[str, str], tuple[str, float]] = {}
        self._first: float | None = None
        self._last = 0.0
        self._done = 0
        self._replayed = 0
        self._start = time.monotonic()

    def entitle(self, title: str) -> None:
        """Set the title of the next steps; restart the time and the counts."""
        self.title = title
        self._restart()

    def tell(self, run: str, step: ReplayStep, at: float) -> None:
        """Record a step and its time on the run's clock."""
        self._first = at if self._first is None else self._first
        self._last = at
        if step.state == "begun":
            self._began[run, step.key] = (printable(f"{step.phase.kind} {step.phase.label}"), at)
            return
        self._done += 1
        if step.state == "replayed":
            self._replayed += 1
            self._began.pop((run, step.key), None)
            return
        what, began = self._began.pop((run, step.key))
        self.ended(run, f"{what}, {step.state} in {at - began:,.2f} s")

    def ended(self, run: str, text: str) -> None:
        """Called when a phase ends; a display may print it."""

    @property
    def elapsed(self) -> float:
        """Seconds since the start, on the run's clock."""
        if self._scale is None:
            return self._last - (self._first or 0.0)
        return (time.monotonic() - self._start) / self._scale

    @property
    def summary(self) -> str:
        """Elapsed time and number of finished phases."""
        kept = f", {self._replayed:,} of them from the journal" if self._replayed else ""
        return f"{self.elapsed:,.1f} s, {_phases(self._done)}{kept}"

    def __str__(self) -> str:
        going_on = list(self._began.items())  # a copy: another thread may change it
        several = len({run for (run, _), _ in going_on}) > 1
        doing = [f"{run}: {what}" if several else what for (run, _), (what, _) in going_on]
        more = [f"and {len(doing) - MOST:,} more"] if len(doing) > MOST else []
        return ": ".join(filter(None, (self.title, self.summary, ", ".join(doing[:MOST] + more))))

    def _restart(self) -> None:
        self._start = time.monotonic()
        self._first, self._last = None, 0.0
        self._done, self._replayed = 0, 0


class TerminalProgress(ProgressLine):
    """The line at the bottom of a terminal; with `lines`, also prints a line per phase.

    Without a terminal, it prints only what stays, to stderr.
    """

    def __init__(self, console: Console | None, *, lines: bool, scale: float | None = 1.0) -> None:
        super().__init__(scale)
        self._console = console
        self._lines = lines
        self._told = 0
        self._status = console.status("starting") if console is not None else None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the line while the block runs, redrawn several times a second."""
        self._restart()
        if self._status is None:
            yield
        else:
            self._status.update(self)
            with self._status:
                yield

    def note(self, text: str) -> None:
        """Print a permanent line; if whoever read it is gone, the run goes on."""
        with suppress(OSError):
            if self._console is None:
                sys.stderr.write(f"{printable(text)}\n")
                sys.stderr.flush()
            else:
                self._console.print(printable(text), highlight=False, markup=False)

    def ended(self, run: str, text: str) -> None:
        """Print the phase, preceded by the number of phases taken from the journal."""
        if not self._lines:
            return
        if self._replayed > self._told:
            self.note(f"{run}: {_phases(self._replayed - self._told)} from the journal")
            self._told = self._replayed
        self.note(f"{run}, {self.elapsed:,.1f} s: {text}")

    def __rich__(self) -> Text:
        from rich.text import Text  # rich, which takes long to load, is loaded already here

        return Text(str(self))


PAUSE = 0.1
"""Seconds between two updates of a notebook's line."""
REPORTING = 5.0
"""Seconds between two progress lines of a script."""
LOG = logging.getLogger("qtide.progress")


@contextmanager
def progress(spec: Spec, script: str = "", run: RunFolder | None = None) -> Iterator[Tell]:
    """Show progress in a notebook, with the timeline of a `run`; for a `script`, log some lines.

    On a terminal, these lines also go to stderr; they do not change in place, since the script
    prints too.
    """
    handle = _place_in_notebook(f"{spec.strategy} on {spec.cluster}: starting")
    if handle is not None:
        drawn = _timeline(run)
        show, pause = (lambda text: handle.update(_html(text + drawn()), raw=True)), PAUSE
    elif script:
        show, pause = (lambda text: _report(f"{script}: {text}")), REPORTING
    else:
        yield lambda *_: None
        return
    with LiveProgress(show, pause, scale_of(spec)) as line:
        yield line.tell


class LiveProgress(ProgressLine):
    """The line of a notebook or a script; a thread updates it at fixed intervals.

    There may be thousands of steps per second, and the last one before a long phase must be shown.
    """

    def __init__(
        self, show: Callable[[str], object], pause: float, scale: float | None = None
    ) -> None:
        super().__init__(scale)
        self._show = show
        self._pause = pause
        self._shown = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, daemon=True)

    def __enter__(self) -> LiveProgress:
        self._restart()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._shown or self._pause == PAUSE:
            self._show(self.summary)

    def _keep_up(self) -> None:
        while not self._over.wait(self._pause):
            if self._first is not None and str(self) != self._shown:
                self._shown = str(self)
                self._show(self._shown)


def _timeline(run: RunFolder | None) -> Callable[[], str]:
    """Return a function that draws a run below its line, a few times per second at most."""
    if run is None:
        return lambda: ""
    from qtide.interfaces.report import live_picture  # only notebooks need it here

    draw, last, at = live_picture.live(run, live_picture.NOTEBOOK_WIDTH), "", 0.0

    def drawn() -> str:
        nonlocal last, at
        if run.state in live_picture.OVER:
            return ""  # the run itself shows its timeline now
        if time.monotonic() - at > live_picture.PAUSE:
            last, at = f"\n{draw()}", time.monotonic()
        return last

    return drawn


def in_place(text: str) -> Callable[[str], object] | None:
    """Show a text in a notebook; return what replaces it, or None outside a notebook."""
    handle = _place_in_notebook(text)
    return None if handle is None else lambda new: handle.update(_html(new), raw=True)


def _report(line: str) -> None:
    LOG.info(line)
    if sys.stderr is not None and sys.stderr.isatty():
        with suppress(OSError):  # the terminal is gone; the script goes on
            sys.stderr.write(f"qtide: {line}\n")


def _place_in_notebook(text: str) -> Any:
    """Return the handle of a new line; None outside a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display  # already loaded here

    return display(_html(text), raw=True, display_id=True)  # type: ignore[no-untyped-call]


def _html(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}


def _phases(number: int) -> str:
    return "1 phase" if number == 1 else f"{number:,} phases"
