"""The report of a folder: of a run, or of a comparison with all its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qtide.errors import UsageError
from qtide.runs.aftermath import settle
from qtide.runs.comparison import read_cases, report
from qtide.runs.folder import RunFolder, unique

if TYPE_CHECKING:
    from qtide.report.page import Report


def write_report(folder: Path) -> Report:
    """Write report.html, and the timelines as PNG and SVG, into the folder."""
    for each in RunFolder.all(folder):
        settle(each)
    cases = read_cases(folder)
    if not any(case.panel().intervals for case in cases):
        raise UsageError(f"{folder} has no ledger yet; run it first")
    return report(folder, cases)


def reported(name: str, runs: Path) -> Path:
    """The folder of the run or the comparison with that name, or with that prefix."""
    for path in (runs / name, Path(name)):
        if name != "last" and path.is_dir() and any(path.rglob("run.json")):
            return path
    if name == "last":
        found = RunFolder.find(runs, name).path
        return runs / found.relative_to(runs).parts[0]
    names = RunFolder.names(runs)
    folders = {each.partition("/")[0] for each in names}
    return runs / unique(name, names if "/" in name else sorted(folders), "run", f"in {runs}")
