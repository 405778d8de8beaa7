"""qtide compare: every strategy, one table, one picture."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, err, out
from qtide.cli.output import scale_of, show_table
from qtide.cli.program import takes_spec
from qtide.cli.progress import Progress
from qtide.cli.run import check
from qtide.errors import UsageError
from qtide.runs.comparison import Case, notes, report
from qtide.runs.comparison import compare as run_all
from qtide.runs.folder import stamp
from qtide.runs.precedent import durations, with_precedent
from qtide.runs.site import is_virtual
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names


@takes_spec
def compare(
    spec: Spec,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A strategy to compare; may be repeated.  [default: all]",
            autocompletion=completion.strategies,
        ),
    ] = None,
    jobs: Annotated[
        list[int] | None, typer.Option(help="Jobs at once; may be repeated.  [default: 1]")
    ] = None,
    warm_up: Annotated[
        bool,
        typer.Option(
            "--warm-up/--no-warm-up",
            help="Run once beforehand, on every node: no strategy pays for loading libraries.",
        ),
    ] = True,
    name: options.Name = "",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Run a program under several strategies; concurrent jobs share the QPU.

    Example: qtide compare synthetic --cluster simulated --jobs 1 --jobs 2
    """
    title = check(spec)
    folder = runs / (name or f"compare-{title}-{stamp()}")
    if folder.exists():
        raise UsageError(f"{folder} exists already; choose another --name")
    spec, warm = with_precedent(spec, runs), warm_up and not is_virtual(spec)
    cases = _run(folder, spec, strategy or strategy_names(), jobs or [1], warm_up=warm)
    _show(folder, cases, json_wanted=json)


def _run(
    folder: Path, spec: Spec, strategies: list[str], jobs: list[int], *, warm_up: bool
) -> list[Case]:
    for number in jobs:
        if number < 1:
            raise UsageError(f"--jobs has to be at least 1, not {number}")
    progress = Progress(err, lines=False, scale=scale_of(spec))
    total = len(strategies) * len(jobs)
    done = count(1)

    def ended(case: Case) -> None:
        number = next(done)
        progress.note(f"{number} of {total}: {line(case)}")
        progress.entitle(f"{number + 1} of {total}")

    progress.entitle("warming up" if warm_up else f"1 of {total}")
    with progress.shown():
        return run_all(folder, spec, strategies, jobs, progress.tell, ended, warm_up=warm_up)


def line(case: Case) -> str:
    """A case that has ended, in a line."""
    metrics = case.panel().metrics
    figures = f"{metrics.total:,.1f} s, {metrics.nodes_held:,.1f} node-s"
    jobs = "1 job" if case.jobs == 1 else f"{case.jobs} jobs"
    return f"{case.strategy}, {jobs}: {figures}"


def _show(folder: Path, cases: list[Case], *, json_wanted: bool) -> None:
    made = report(folder, cases)
    if json_wanted:
        lines = [case.as_dict() for case in cases]
        described = {"folder": str(folder), "report": str(made.page), "notes": notes(cases)}
        as_json(described | {"durations": durations(cases[0].runs[0]), "cases": lines})
        return
    show_table(cases)
    for note in notes(cases):
        out.print(note, markup=False, highlight=False)
    out.print(f"report: {made.page}", markup=False, highlight=False)
