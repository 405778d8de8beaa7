"""The precedent of a run in virtual time: an earlier, real run of the same program.

It says how long those tasks take that pretend nothing. How long quantum phases take, the QPU's
timing profile says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qtide.clusters.recorded import Recorded
from qtide.errors import QtideError
from qtide.runs.folder import RunFolder
from qtide.runs.site import is_virtual
from qtide.runs.spec import Spec

NONE = "none"
"""What a user says who wants no precedent."""


def with_precedent(spec: Spec, runs: Path) -> Spec:
    """The same run with the precedent that it is to have, if it runs in virtual time."""
    named = spec.options.get("durations", "")
    if not is_virtual(spec) or named == NONE:
        return spec
    found = RunFolder.find(runs, named) if named else _newest(spec, runs)
    path = str(found.path.absolute()) if found else ""
    return replace(spec, options=spec.options | {"durations": path})


def recorded(spec: Spec) -> Recorded:
    """The durations of its precedent; none if there is none, or if it has been removed."""
    named = spec.options.get("durations", "")
    if not is_virtual(spec) or named in ("", NONE):
        return Recorded()
    run = RunFolder(Path(named))
    try:
        ended = [span for span in run.intervals() if not span.open_ended]
        return Recorded.of(ended, run.spec.time_scale)
    except QtideError:
        return Recorded()


def durations(run: RunFolder) -> dict[str, Any]:
    """Where the durations of its tasks come from, for JSON; nothing if all was pretended."""
    noted = run.durations
    named = run.spec.options.get("durations", "") if noted.get("used") else ""
    return {"run": named or None, **noted} if noted else {}


def notes(runs: Sequence[RunFolder]) -> list[str]:
    """What a reader has to know about the durations of these runs, all of one program."""
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


def _newest(spec: Spec, runs: Path) -> RunFolder | None:
    """A run that was done in real time; rather one with the same arguments, rather a new one."""
    fitting = [run for run in RunFolder.all(runs) if _fits(run, spec)]
    return max(fitting, key=lambda run: (_likeness(run, spec), run.created), default=None)


def _fits(run: RunFolder, spec: Spec) -> bool:
    try:
        other = run.spec
        return other.program == spec.program and run.state == "done" and not is_virtual(other)
    except (QtideError, OSError):  # of a version, or with a plug-in, that is not here
        return False


def _likeness(run: RunFolder, spec: Spec) -> tuple[bool, bool]:
    """Whether its arguments are the same, and its nodes were warm, not just warming up."""
    return run.spec.words == spec.words, not run.is_warm_up


def _tasks(names: set[str]) -> str:
    """The tasks a, b and c."""
    shown = sorted(names)
    if len(shown) == 1:
        return f"The task {shown[0]}"
    return f"The tasks {', '.join(shown[:-1])} and {shown[-1]}"


def _shown(precedent: Path) -> str:
    """Its path from here, if it is below, where it ran, and when."""
    run = RunFolder(precedent)
    here = Path.cwd()
    path = precedent.relative_to(here) if precedent.is_relative_to(here) else precedent
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
    return (
        f"the run {path} ({run.spec.cluster}, {when})" if run.damage is None else f"the run {path}"
    )


def _reason(named: str, spec: Spec) -> str:
    """Why nothing is known of a task, and what to do."""
    what_to_do = f"run {Path(spec.program).name} once with --cluster local, then this again"
    if named == NONE:
        return "as no durations of an earlier run were wanted; leave out --durations none"
    if named:
        return f"as {_shown(Path(named))} has none of them; {what_to_do}"
    return f"as there is no earlier run that says how long real work takes; {what_to_do}"
