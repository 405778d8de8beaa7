"""The results of runs for the user: text on stdout, or JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence

from qtide.core.errors import QtideError
from qtide.core.metrics import measure
from qtide.interfaces.cli.console import as_json, err, out, stdout_for_json
from qtide.interfaces.progress import Progress
from qtide.interfaces.report.table import TableRow, rich_table
from qtide.runs.comparison import Case
from qtide.runs.driver import Outcome, plain, play, sentence
from qtide.runs.earlier import durations, precedent_notes
from qtide.runs.folder import RunFolder, open_ended
from qtide.runs.open_site import is_virtual
from qtide.runs.spec import Spec


class ProgramFailed(QtideError):  # noqa: N818 - what happened
    """The program's own failure, with what to do next."""


def show_table(cases: Sequence[Case]) -> None:
    """The figures of cases; if there is room, relative to static's."""
    show_rows([TableRow(case.strategy, case.jobs, case.panel().metrics) for case in cases])


def show_rows(rows: Sequence[TableRow]) -> None:
    """A row per strategy; if there is room, relative to static's."""
    out.print(rich_table(rows, relative=len(rows) > 1 and out.width >= 100))


def play_one(run: RunFolder, *, json_wanted: bool) -> None:
    """Execute a run with progress, then show its result."""
    progress = Progress(err, lines=True, scale=scale_of(run.spec))
    with stdout_for_json(wanted=json_wanted), progress.shown():
        outcome = play(run, progress.tell)
    if outcome.error is not None:
        raise _failure(outcome)
    _show(outcome, json_wanted=json_wanted)


def scale_of(spec: Spec) -> float | None:
    """How long a second of a run takes; None if its time is virtual."""
    return None if is_virtual(spec) else spec.time_scale


def _show(outcome: Outcome, *, json_wanted: bool) -> None:
    run = outcome.run
    metrics = measure(run.intervals())
    value = plain(outcome.value)
    if json_wanted:
        described = {"run": run.name, "folder": str(run.path), "state": run.state}
        figures = {"value": value, "metrics": metrics.as_dict()}
        as_json(described | figures | {"durations": durations(run)})
        return
    show_rows([TableRow(run.spec.strategy, 1, metrics)])
    for note in (*precedent_notes([run]), *filter(None, [open_ended(run)])):
        out.print(note, markup=False, highlight=False)
    out.print(f"result: {json.dumps(value)}", markup=False, highlight=False)
    out.print(
        f"run {run.name} is in {run.path}; see it with: qtide report {run.name}", markup=False
    )


def _failure(outcome: Outcome) -> QtideError:
    assert outcome.error is not None
    text = sentence(outcome.error)
    if isinstance(outcome.error, QtideError):
        return outcome.error
    name = outcome.run.name
    return ProgramFailed(f"{text}\nfinished phases are kept; fix it, then: qtide resume {name}")
