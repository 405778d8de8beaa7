"""qtide list: all runs, with one line per comparison."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, print_rows, say
from qtide.runs.folder import RunFolder, newest_last

DAMAGED = "damaged"
ORDER = (DAMAGED, "running", "failed", "interrupted", "cancelled", "new", "done")
"""A comparison has the first of these states that any of its jobs has."""
MONTHS = 180 * 86400.0
"""Age in seconds up to which a date is shown without its year."""


def list_runs(
    runs: shared_options.Runs = shared_options.RUNS,
    every: Annotated[
        bool, typer.Option("--all", help="List the jobs of comparisons one by one.")
    ] = False,
    json: shared_options.Json = False,
) -> None:
    """List the runs, newest last. A comparison takes one line.

    Example: qtide list --json
    """
    found = [_row(run, runs) for run in newest_last(runs)]
    rows = found if every else list(_together(found))
    if json:
        as_json([row | {"created": _date(row["created"], with_year=True)} for row in rows])
        return
    if not rows:
        say(f"there is no run in {runs} yet; start one with: qtide run PROGRAM.py")
        return
    print_rows([_shown(row) for row in rows])
    for row in found:
        if row["damage"] is not None:
            say(f"{row['run']} is damaged: {row['damage']}")


def _row(run: RunFolder, root: Path) -> dict[str, Any]:
    about = {"run": str(run.path.relative_to(root)), "jobs": 1}
    made = {"created": run.created, "damage": run.damage}
    if made["damage"] is not None:  # a damaged run must not hide the others
        return about | {"state": DAMAGED, "program": "", "strategy": "", "cluster": ""} | made
    spec = run.spec
    return (
        about
        | {"state": run.state, "program": Path(spec.program).name}
        | {"strategy": spec.strategy, "cluster": spec.cluster}
        | made
    )


def _together(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Merge the jobs of each comparison into one row, at the position of the newest."""
    kept = {row["run"]: [row] for row in rows}
    for name, jobs in groupby(sorted(rows, key=_folder), key=_folder):
        within = list(jobs)
        if [row["run"] for row in within] != [name]:
            for row in within:
                del kept[row["run"]]
            kept[name] = [row for row in within if "/warm-up/" not in row["run"]] or within
    made = [each[0] if name == each[0]["run"] else _one(name, each) for name, each in kept.items()]
    yield from sorted(made, key=lambda row: float(row["created"]))


def _folder(row: dict[str, Any]) -> str:
    return str(row["run"]).partition("/")[0]


def _one(name: str, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a comparison as a row."""
    strategies = sorted({row["strategy"] for row in jobs} - {""})
    return {
        "run": name,
        "jobs": len(jobs),
        "state": min((row["state"] for row in jobs), key=ORDER.index),
        "program": _common(row["program"] for row in jobs),
        "strategy": _common(strategies) or f"{len(strategies)} compared",
        "cluster": _common(row["cluster"] for row in jobs),
        "created": max(row["created"] for row in jobs),
        "damage": None,
    }


def _common(words: Iterable[str]) -> str:
    """Return the word common to all; empty if they differ."""
    found = set(words) - {""}
    return found.pop() if len(found) == 1 else ""


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for people."""
    texts = {name: row[name] or None for name in ("run", "state", "program", "strategy", "cluster")}
    return texts | {"created": _date(row["created"])}


def _date(moment: float, *, with_year: bool = False) -> str:
    recent = "%Y-%m-%d %H:%M" if with_year else "%m-%d %H:%M"
    form = recent if with_year or abs(time.time() - moment) < MONTHS else "%Y-%m-%d"
    return time.strftime(form, time.localtime(moment))
