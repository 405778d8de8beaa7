"""qtide list: all runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.errors import QtideError
from qtide.runs.folder import RunFolder

WIDTH = 16
"""Characters of a run's name that always fit on a line."""


def list_runs(runs: options.Runs = options.RUNS, json: options.Json = False) -> None:
    """List the runs, newest last.

    Example: qtide list --json
    """
    rows = [_row(run, runs) for run in sorted(RunFolder.all(runs), key=lambda run: run.created)]
    if json:
        as_json(rows)
        return
    if not rows:
        out.print(f"there is no run in {runs} yet; start one with: qtide run PROGRAM.py")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for title in rows[0]:
        table.add_column(title, overflow="fold", no_wrap=title != "run")
    table.columns[0].min_width = WIDTH
    for row in rows:
        table.add_row(*map(str, row.values()))
    out.print(table)


def _row(run: RunFolder, root: Path) -> dict[str, Any]:
    name = {"run": str(run.path.relative_to(root))}
    created = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created))
    try:
        spec, state = run.spec, run.state
    except (QtideError, OSError):  # a broken run must not hide the others
        unknown = dict.fromkeys(("program", "strategy", "cluster"), "–")
        return name | {"state": "unreadable"} | unknown | {"created": created}
    return name | {
        "state": state,
        "program": Path(spec.program).name,
        "strategy": spec.strategy,
        "cluster": spec.cluster,
        "created": created,
    }
