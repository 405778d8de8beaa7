"""Lessons: what a run learnt of its program, kept in its folder for later runs.

So a run knows from its first round what nodes have to import, how long they take to start, how long
tasks take, and which phase follows which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from qtide.errors import QtideError
from qtide.forecasts.forecast import Forecast, Known
from qtide.jobs.preparation import Preparation
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual
from qtide.runs.spec import Spec
from qtide.system.files import read_json, write_json, write_whole

NAME = "lessons.json"
LOOKED_AT = 100
"""How many other runs are looked at, the newest first."""


@dataclass
class Lessons:
    """What is known of a program; times are real seconds for nodes, the run's own for phases."""

    preparation: Preparation = field(default_factory=Preparation)
    known: Known | None = None

    def teach(self, forecast: Forecast) -> None:
        """Let a forecast begin with it."""
        if self.known is not None:
            forecast.recall(self.known)

    def as_json(self) -> dict[str, Any]:
        """To be read by a later run of the same program."""
        return {"nodes": self.preparation.as_json(), "phases": self.known}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> Lessons:
        """Back from JSON; what cannot be used is refused."""
        found = Lessons(Preparation.from_json(entry["nodes"]), entry["phases"])
        found.teach(Forecast(lambda: 0.0, lambda _: 0.0))
        return found


def recall(run: RunFolder) -> Lessons:
    """What the run itself, or else the newest one beside it of the same program, has learnt."""
    spec = run.spec
    if is_virtual(spec):
        return Lessons()
    for other in (run, *islice(_beside(run), LOOKED_AT)):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, QtideError):
            if other.spec.program == spec.program:
                found = Lessons.from_json(read_json(other.path / NAME))
                nodes = found.preparation
                here = nodes if _kind(other.spec) == _kind(spec) else nodes.elsewhere()
                return Lessons(here.scaled(1 / spec.time_scale), found.known)
    return Lessons()


def remember(run: RunFolder, preparation: Preparation, forecast: Forecast) -> None:
    """Keep it; no run fails because that is not possible."""
    if is_virtual(run.spec) or preparation.seconds is None:
        return
    lessons = Lessons(preparation.scaled(run.spec.time_scale), forecast.as_json())
    with suppress(OSError):
        write_json(run.path / NAME, lessons.as_json())


def hand_on(run: RunFolder, others: list[RunFolder]) -> None:
    """Let other runs begin with what a run has learnt, each with the same."""
    with suppress(OSError):
        data = (run.path / NAME).read_bytes()
        for other in others:
            write_whole(other.path / NAME, data)


def _beside(run: RunFolder) -> Iterator[RunFolder]:
    """The runs in the same folder that have learnt something, the newest first."""
    files = run.path.parent.glob(f"*/{NAME}")
    for file in sorted(files, key=_written, reverse=True):
        yield RunFolder(file.parent)


def _kind(spec: Spec) -> str:
    return spec.cluster.partition(":")[0]


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
