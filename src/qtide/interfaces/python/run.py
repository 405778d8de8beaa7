"""Runs as Python objects: state, result and resources used."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qtide.core.errors import QtideError, UsageError
from qtide.core.metrics import Metrics, Panel, measure
from qtide.runs.comparison import Case
from qtide.runs.folder import RunFolder, State
from qtide.runs.presence import where

if TYPE_CHECKING:
    from matplotlib.figure import Figure


T = TypeVar("T")

CANCELLING = 60.0
"""Seconds a driver may take to release everything."""
PAUSE = 0.1
"""Seconds between two checks of a run's state."""


class RunFailed(QtideError):  # noqa: N818 - the name says what happened
    """A run driven by another process has failed; the message says why."""


class Run(Generic[T]):
    """A run of a program, present or past, in this process or another."""

    def __init__(self, folder: RunFolder) -> None:
        self._run = folder

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._run.name

    @property
    def folder(self) -> Path:
        """The folder with everything about the run."""
        return self._run.path

    @property
    def state(self) -> State:
        """One of new, running, done, failed, cancelled and interrupted."""
        return self._run.state

    @property
    def value(self) -> T:
        """The program's return value; raises an error unless the run is done."""
        state = self.state
        if state == "failed":
            raise RunFailed(str((self._run.end or {}).get("error")))
        if state != "done":
            advice = "wait() for it" if state == "running" else f"qtide.resume({self.name!r})"
            raise UsageError(f"{self.name} has no value: it is {state}; {advice}")
        found: T = self._run.value
        return found

    @property
    def metrics(self) -> Metrics:
        """Return what the run held and used, from its ledger."""
        return measure(self._run.intervals())

    def wait(self, timeout: float | None = None) -> Run[T]:
        """Wait until the run has ended; raise TimeoutError after `timeout` seconds."""
        limit = None if timeout is None else time.monotonic() + timeout
        while self.state in ("new", "running"):
            if limit is not None and time.monotonic() > limit:
                raise TimeoutError(f"{self.name} is still {self.state} after {timeout:g} s")
            time.sleep(PAUSE)
        return self

    def watch(self) -> Run[T]:
        """Draw the run as it goes on, in a notebook or a terminal, until it has ended."""
        from rich.console import Console  # rarely used, slow to import

        from qtide.interfaces.progress import in_place
        from qtide.interfaces.report.live_picture import NOTEBOOK_WIDTH, follow, live

        show = in_place(f"{self.name} is {self.state}")
        if show is None:
            follow(self._run, Console())
            return self
        draw = live(self._run, NOTEBOOK_WIDTH)
        while self.state in ("new", "running"):
            show(draw())
            time.sleep(PAUSE)
        show(draw())
        return self

    def cancel(self) -> None:
        """Make the driver release everything and end; the run can be resumed."""
        run = self._run
        if run.state != "running":
            raise UsageError(f"{run.name} is not running; it is {run.state}")
        run.presence.request_cancel()
        limit = time.monotonic() + CANCELLING
        while run.state == "running":
            if time.monotonic() > limit:
                driver = run.presence.driver
                place = f" ({where(driver)})" if driver else ""
                raise QtideError(f"the driver of {run.name}{place} did not end in {CANCELLING:g} s")
            time.sleep(PAUSE)

    def describe(self) -> dict[str, Any]:
        """Return everything that `qtide show --json` prints."""
        from qtide.interfaces.python.description import describe  # rarely used, slow to import

        return describe(self._run)

    def timeline(self) -> Figure:
        """Return the timeline of what the run held and used, as a Matplotlib figure."""
        from qtide.interfaces.report.timeline import draw  # matplotlib is heavy

        return draw([self._case.panel()])

    def report(self) -> Path:
        """Write the report of the run; return the path of its page."""
        from qtide.interfaces.python.description import write_report  # rarely used, slow to import

        return write_report(self.folder).page

    @property
    def _case(self) -> Case:
        return Case(self._run.spec.strategy, 1, (self._run,))

    def _lines(self) -> Iterator[str]:
        yield f"{self.name} is {self.state}; its folder is {self.folder}"
        end = self._run.end or {}
        if "value" in end:
            yield f"result: {json.dumps(end['value'])}"
        elif "error" in end:
            yield str(end["error"])

    def _repr_html_(self) -> str:
        if self._run.damage is not None or not self._run.ledger.exists():
            return f"<p>{escape(repr(self))}</p>"
        return shown(self.name, [self._case], list(self._lines()))

    def _repr_png_(self) -> bytes | None:
        """Return the timeline, for notebook viewers that show no HTML."""
        if self._run.damage is not None or not self._run.ledger.exists():
            return None
        from qtide.interfaces.report.page import png  # imported late: matplotlib is slow

        return png(self.timeline())

    def __repr__(self) -> str:
        return f"<qtide run {self.name}: {self.state}>"


_numbers = count(1)
"""Numbers that make element ids unique within a notebook."""


def shown(title: str, cases: Sequence[Case], lines: Sequence[str] = ()) -> str:
    """Return cases as an HTML element for a notebook."""
    from qtide.interfaces.report.run_report import Group, embedded  # matplotlib is heavy

    groups: dict[int, list[Panel]] = defaultdict(list)
    for case in cases:
        groups[case.jobs].append(case.panel())
    made = [Group(jobs, tuple(panels)) for jobs, panels in groups.items()]
    return embedded(title, made, lines, f"qtide-{next(_numbers)}")
