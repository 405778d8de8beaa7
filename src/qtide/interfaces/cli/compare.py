"""qtide compare: every strategy, one table, one picture."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, show_table, terminal
from qtide.interfaces.cli.run import takes_spec
from qtide.interfaces.progress import TerminalProgress, scale_of
from qtide.interfaces.python.description import comparison_report, summary_line
from qtide.runs.comparison import Case, ComparisonPlan, notes, verdicts
from qtide.runs.earlier import durations
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names


@takes_spec
def compare(
    spec: Spec,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Strategy to compare; may be repeated.  [default: all]",
            autocompletion=shared_options.strategies,
        ),
    ] = None,
    jobs: Annotated[
        list[int] | None, typer.Option(help="Concurrent jobs; may be repeated.  [default: 1]")
    ] = None,
    warm_up: Annotated[
        bool,
        typer.Option(
            "--warm-up/--no-warm-up",
            help="Run once beforehand, so that no strategy pays for loading libraries.",
        ),
    ] = True,
    name: shared_options.Name = "",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Run a program under several strategies; concurrent jobs share the QPU.

    Example: qtide compare synthetic --cluster simulated --jobs 1 --jobs 2
    """
    wanted = ComparisonPlan(
        spec, tuple(strategy or strategy_names()), tuple(jobs or [1]), warm_up=warm_up
    )
    folder = wanted.folder(runs, name)
    _show(folder, _run(folder, wanted), json_wanted=json)


def _run(folder: Path, wanted: ComparisonPlan) -> list[Case]:
    progress = TerminalProgress(terminal(), lines=False, scale=scale_of(wanted.spec))
    total, done = len(wanted), count(1)

    def ended(case: Case) -> None:
        number = next(done)
        progress.note(f"{number} of {total}: {summary_line(case)}")
        progress.entitle(f"{number + 1} of {total}")

    progress.entitle("warming up" if wanted.warms_up else f"1 of {total}")
    with progress.shown():
        return wanted.run(folder, progress.tell, ended)


def _show(folder: Path, cases: list[Case], *, json_wanted: bool) -> None:
    made = comparison_report(folder, cases)
    if json_wanted:
        lines = [case.as_dict() for case in cases]
        described = {"folder": str(folder), "report": str(made.page), "notes": notes(cases)}
        described["verdicts"] = verdicts(cases)
        as_json(described | {"durations": durations(cases[0].runs[0]), "cases": lines})
        return
    show_table(cases)
    for note in (*notes(cases), *verdicts(cases)):
        say(note)
    say(f"report: {made.page}")
