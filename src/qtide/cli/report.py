"""qtide report: a run, or a comparison, as one page with its timelines."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, err, out
from qtide.cli.output import show_table
from qtide.runs.comparison import damages, read_cases
from qtide.runs.reporting import reported, write_report


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run or a comparison: its name or a prefix of it, its folder, or `last`.",
            autocompletion=completion.reportable,
        ),
    ],
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Write report.html, and the timelines as PNG and SVG, into the folder of a run.

    Example: qtide report last
    """
    folder = reported(run, runs)
    made = write_report(folder)
    for sentence in damages(folder):
        err.print(f"left out: {sentence}", markup=False, highlight=False)
    if json:
        as_json({"page": str(made.page), "pictures": [str(each) for each in made.pictures]})
        return
    show_table(read_cases(folder))
    out.print(f"report: {made.page}", markup=False, highlight=False)
