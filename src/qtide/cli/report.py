"""qtide report: a run, or a comparison, as one page with its timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, err, out
from qtide.cli.output import show_table
from qtide.errors import UsageError
from qtide.runs.aftermath import settle
from qtide.runs.comparison import damages, read_cases
from qtide.runs.comparison import report as write
from qtide.runs.folder import RunFolder, unique


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
    folder = _folder(run, runs)
    for each in RunFolder.all(folder):
        settle(each)
    cases = read_cases(folder)
    for sentence in damages(folder):
        err.print(f"left out: {sentence}", markup=False, highlight=False)
    if not any(case.panel().intervals for case in cases):
        raise UsageError(f"{folder} has no ledger yet; run it first")
    made = write(folder, cases)
    if json:
        as_json({"page": str(made.page), "pictures": [str(each) for each in made.pictures]})
        return
    show_table(cases)
    out.print(f"report: {made.page}", markup=False, highlight=False)


def _whole(run: Path, runs: Path) -> Path:
    """The comparison that a run belongs to, or the run itself."""
    return runs / run.relative_to(runs).parts[0]


def _folder(name: str, runs: Path) -> Path:
    for path in (runs / name, Path(name)):
        if name != "last" and path.is_dir() and any(path.rglob("run.json")):
            return path
    if name == "last":
        return _whole(RunFolder.find(runs, name).path, runs)
    names = RunFolder.names(runs)
    folders = {each.partition("/")[0] for each in names}
    return runs / unique(name, names if "/" in name else sorted(folders), "run", f"in {runs}")
