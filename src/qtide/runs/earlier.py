"""Earlier runs of the same program: task durations, and lessons about its phases.

In virtual time, tasks without a simulated duration take as long as in a real run of the program,
the *precedent*; the QPU's timing profile gives the duration of quantum phases. In real time, a run
begins with the *lessons* of an earlier one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtide.core.errors import QtideError
from qtide.core.files import read_json, write_json, write_whole
from qtide.core.forecasts import Forecast, Known
from qtide.core.job import Preparation
from qtide.runs.folder import RunFolder
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec

if TYPE_CHECKING:
    from qtide.backends.clusters.virtual_tasks import Recorded

NONE = "none"
"""Value of --durations for no precedent."""


def earlier_runs(spec: Spec, runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Runs of the same program, most similar first.

    The same kind of cluster counts most, then the same arguments, then not being a warm-up,
    then being newer.
    """
    found: list[tuple[tuple[bool, bool, bool, float], RunFolder]] = []
    for run in runs:
        with suppress(QtideError, OSError):  # its version or plug-in is missing here
            other = run.spec
            if _same_program(other.program, spec.program):
                alike = _kind(other) == _kind(spec), other.words == spec.words
                found.append(((*alike, not run.is_warm_up, run.created), run))
    return [run for _, run in sorted(found, key=lambda each: each[0], reverse=True)]


def is_done(run: RunFolder) -> bool:
    """Whether a run is done; False if its folder cannot be read."""
    try:
        return run.state == "done"
    except (QtideError, OSError):
        return False


def _same_program(one: str, other: str) -> bool:
    """Whether two references name the same program; those from Python include the function."""
    return one == other or one.rpartition(":")[0] == other or other.rpartition(":")[0] == one


def _kind(spec: Spec) -> str:
    return spec.cluster.partition(":")[0]


def with_precedent(spec: Spec, runs: Path) -> Spec:
    """Add the precedent to a run in virtual time."""
    named = spec.options.get("durations", "")
    if not is_virtual(spec) or named == NONE:
        return spec
    if named:
        found: RunFolder | None = RunFolder.find(runs, named)
    else:
        done = filter(is_done, earlier_runs(spec, RunFolder.all(runs)))
        found = next((run for run in done if not is_virtual(run.spec)), None)
    path = str(found.path.absolute()) if found else ""
    return replace(spec, options=spec.options | {"durations": path})


def recorded(spec: Spec) -> Recorded | None:
    """Task durations of a run's precedent, if any; None in real time."""
    if not is_virtual(spec):
        return None
    from qtide.backends.clusters.virtual_tasks import Recorded  # loads the models of sites

    named = spec.options.get("durations", "")
    if named in ("", NONE):
        return Recorded()
    run = RunFolder(Path(named))
    try:
        ended = [span for span in run.intervals() if not span.open_ended]
        return Recorded.of(ended, run.spec.time_scale)
    except QtideError:  # it has been removed
        return Recorded()


def durations(run: RunFolder) -> dict[str, Any]:
    """Source of a run's task durations, for JSON; empty if all were simulated."""
    noted = run.durations
    named = run.spec.options.get("durations", "") if noted.get("used") else ""
    return {"run": named or None, **noted} if noted else {}


def precedent_notes(runs: Sequence[RunFolder]) -> list[str]:
    """Notes on the task durations of these runs, all of one program."""
    used = {name for run in runs for name in run.durations.get("used", ())}
    missing = {name for run in runs for name in run.durations.get("missing", ())}
    spec = runs[0].spec
    named = spec.options.get("durations", "")
    lines = []
    if used:
        lines.append(f"{_tasks(used)} took as long as in {_shown(Path(named))}, call by call.")
    if missing:
        lines.append(f"{_tasks(missing)} took no time at all, {_reason(named, spec)}.")
    return lines


def _tasks(names: set[str]) -> str:
    """Format names as "The tasks a, b and c"."""
    shown = sorted(names)
    if len(shown) == 1:
        return f"The task {shown[0]}"
    return f"The tasks {', '.join(shown[:-1])} and {shown[-1]}"


def _shown(precedent: Path) -> str:
    """Describe a precedent: its path, relative if below the current folder, cluster and time."""
    run = RunFolder(precedent)
    here = Path.cwd()
    path = precedent.relative_to(here) if precedent.is_relative_to(here) else precedent
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
    return (
        f"the run {path} ({run.spec.cluster}, {when})" if run.damage is None else f"the run {path}"
    )


def _reason(named: str, spec: Spec) -> str:
    """Explain why a task's duration is unknown, and what to do."""
    what_to_do = f"run {Path(spec.program).name} once with --cluster local, then this again"
    if named == NONE:
        return "as no durations of an earlier run were wanted; leave out --durations none"
    if named:
        return f"as {_shown(Path(named))} has none of them; {what_to_do}"
    return f"as there is no earlier run that says how long real work takes; {what_to_do}"


NAME = "lessons.json"
LOOKED_AT = 100
"""Maximum number of other runs to consider, newest first."""


@dataclass
class Lessons:
    """Knowledge about a program; node times are in real seconds, phase times on the run's clock."""

    preparation: Preparation = field(default_factory=Preparation)
    known: Known | None = None

    def teach(self, forecast: Forecast) -> None:
        """Initialize a forecast with these lessons."""
        if self.known is not None:
            forecast.recall(self.known)

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON for later runs of the program."""
        return {"nodes": self.preparation.as_json(), "phases": self.known}

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> Lessons:
        """Read from JSON; raise if the lessons cannot be used."""
        found = Lessons(Preparation.from_json(entry["nodes"]), entry["phases"])
        found.teach(Forecast(lambda: 0.0, lambda _: 0.0))
        return found


def recall(run: RunFolder) -> Lessons:
    """Lessons of the run itself, or else of the most similar run in the same folder."""
    spec = run.spec
    if is_virtual(spec):
        return Lessons()
    for other in _itself_first(run):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, QtideError):
            # nodes import the modules that it names
            found = Lessons.from_json(read_json(other.trusted().path / NAME))
            nodes = found.preparation
            here = nodes if _kind(other.spec) == _kind(spec) else nodes.elsewhere()
            return Lessons(here.scaled(1 / spec.time_scale), found.known)
    return Lessons()


def remember(run: RunFolder, preparation: Preparation, forecast: Forecast) -> None:
    """Store a run's lessons; a failure to write them does not fail the run."""
    if is_virtual(run.spec) or preparation.seconds is None:
        return
    lessons = Lessons(preparation.scaled(run.spec.time_scale), forecast.as_json())
    with suppress(OSError):
        write_json(run.path / NAME, lessons.as_json())


def hand_on(run: RunFolder, others: list[RunFolder]) -> None:
    """Copy a run's lessons to other runs, so that all begin with the same knowledge."""
    with suppress(OSError):
        data = (run.path / NAME).read_bytes()
        for other in others:
            write_whole(other.path / NAME, data)


def _itself_first(run: RunFolder) -> Iterator[RunFolder]:
    """The run, which mostly has lessons if it is resumed; then similar ones in the same folder."""
    yield run
    yield from earlier_runs(run.spec, islice(_beside(run), LOOKED_AT))


def _beside(run: RunFolder) -> Iterator[RunFolder]:
    """Runs in the same folder that have lessons, newest first."""
    files = run.path.parent.glob(f"*/{NAME}")
    for file in sorted(files, key=_written, reverse=True):
        yield RunFolder(file.parent)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # removed in the meantime
        return 0.0
