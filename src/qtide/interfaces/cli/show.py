"""qtide show and qtide report: describe a run as text and as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, show_table, warn
from qtide.interfaces.python.description import describe, reported, write_report
from qtide.interfaces.report.decisions import headline, remarks
from qtide.runs.folder import RunFolder
from qtide.runs.presence import where

SHOWN = 10
"""Maximum number of decisions shown."""


def show(
    run: shared_options.Run,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Draw its timeline as it runs, until it ends.")
    ] = False,
    replay: Annotated[
        float | None,
        typer.Option(metavar="SPEED", help="Draw its timeline again, so many times as fast."),
    ] = None,
    runs: shared_options.Runs = shared_options.RUNS,
    as_document: shared_options.Json = False,
) -> None:
    """Show a run: its state, its driver, its current phases, and what it has used.

    Example: qtide show last --follow
    """
    folder = RunFolder.find(runs, run)
    if follow or replay is not None:
        if as_document or (follow and replay is not None):
            raise UsageError("--follow and --replay draw; give one of them, without --json")
        _draw(folder, replay)
        return
    found = describe(folder)
    if as_document:
        as_json(found)
        return
    kind = found["spec"]["cluster"].partition(":")[0]
    for name, value in found.items():
        if value and name not in ("spec", "metrics", "decisions", "lower bounds", kind):
            shown = name if name != "end" else "result" if "value" in value else "error"
            say(f"{shown}: {_words(name, value)}")
    figures = _node_seconds(found["metrics"], found["lower bounds"])
    say(figures)
    decided = _decision_lines(found["decisions"], found["spec"]["strategy"])
    for line in (*_account_lines(kind, found.get(kind, {})), *decided):
        say(line)


def _draw(run: RunFolder, speed: float | None) -> None:
    """Draw a run as it goes on or, at a speed, as it went; Ctrl-C ends only the drawing."""
    from rich.console import Console  # other ways to show a run do not need it

    from qtide.interfaces.report.live_picture import follow, replay

    if speed is not None and not 0 < speed < inf:
        raise UsageError(f"--replay is a number above 0, not {speed:g}")
    with suppress(KeyboardInterrupt):
        follow(run, Console()) if speed is None else replay(run, Console(), speed)


def _node_seconds(metrics: dict[str, Any], unknown: Sequence[str]) -> str:
    """Format node-seconds by use; lower bounds if the driver was killed."""
    figures = [
        f"{name} {'at least ' if name in unknown else ''}{metrics[f'nodes_{name}']:,.1f}"
        for name in ("held", "starting", "busy")
    ]
    return f"node-seconds: {', '.join(figures)}"


def _words(name: str, value: Any) -> str:
    """Format a value for people: a driver, an end, or a list of current activities."""
    if name == "phases":
        return f"{value:,} finished"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and "pid" in value:
        return where(value)
    if isinstance(value, dict):
        return json.dumps(value["value"]) if "value" in value else str(value.get("error"))
    return str(value)


def _decision_lines(found: list[dict[str, Any]], strategy: str) -> list[str]:
    if not found:
        return []
    earlier = (
        f" (--json shows {len(found) - SHOWN:,} earlier decisions)" if len(found) > SHOWN else ""
    )
    lines = [f"{each['at']:10,.1f} s  {each['text']}" for each in found[-SHOWN:]]
    return [f"{headline(strategy)}{earlier}:", *lines, *remarks(lines)]


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _account_lines(kind: str, found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [f"{kind.capitalize()}'s accounting is not available: {found['error']}"]
    lines = [
        f"{name}, by the real clock: held {each['held']:,.1f} s (ledger), charged "
        f"{each['charged']:,.0f} s ({each['source']}, {_jobs(each['jobs'])}), "
        f"difference {each['difference']:+,.1f} s"
        for name, each in found.items()
    ]
    missing = max((each.get("missing", 0) for each in found.values()), default=0)
    if missing:
        lines.append(
            f"{kind.capitalize()}'s records are not complete yet: {missing} of the run's jobs have "
            "ended, but their ends are not recorded; ask again later"
        )
    return lines


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Name of a run or a comparison, or a prefix of it; its folder; or `last`.",
            autocompletion=shared_options.reportable,
        ),
    ],
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Write report.html and the timelines (PNG, SVG) into the folder of a run.

    Example: qtide report last
    """
    from qtide.runs.comparison import damages, read_cases  # to show a run takes less without

    folder = reported(run, runs)
    made = write_report(folder)
    for sentence in damages(folder):
        warn(f"left out: {sentence}")
    if json:
        as_json({"page": str(made.page), "pictures": [str(each) for each in made.pictures]})
        return
    show_table(read_cases(folder))
    say(f"report: {made.page}")
