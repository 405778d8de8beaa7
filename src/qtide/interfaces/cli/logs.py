"""qtide logs: the output of a run's tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from shlex import quote
from typing import Annotated

import typer

from qtide.core.errors import UsageError
from qtide.core.log import LogLine, follow, lines
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, warn
from qtide.runs.folder import RunFolder

UNSTARTED = 86400.0
"""Seconds a run may wait for its driver to start."""


def logs(
    run: shared_options.Run,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until the run ends.")
    ] = False,
    node: Annotated[str, typer.Option(metavar="NAME", help="Show only this node.")] = "",
    task: Annotated[
        str,
        typer.Option(
            metavar="TASK", help="Show only this function, phase (`3`) or task of a phase (`3/0`)."
        ),
    ] = "",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Show the output of a run's tasks, each line with its time, node and task.

    In virtual time, the time is the run's own, in seconds.

    Example: qtide logs last --follow --task kmeans
    """
    folder = RunFolder.find(runs, run)
    said = follow(folder.log, lambda: _over(folder)) if follow_it else lines(folder.log)
    chosen = (line for line in said if _fits(line, node, task))
    with suppress(KeyboardInterrupt):
        some = _show(chosen, json_wanted=json, at_once=follow_it)
        if not some and (node or task):
            of = " and ".join([*filter(None, [node and f"node {node}", task and f"task {task}"])])
            warn(f"no line of {of} is in {folder.log}; see all: qtide logs {quote(folder.name)}")
        elif not some:
            warn(f"the tasks printed nothing; the log of {folder.name} is {folder.log}")


def _show(chosen: Iterator[LogLine], *, json_wanted: bool, at_once: bool) -> bool:
    """Print lines; return whether there were any, or JSON says it."""
    if json_wanted and not at_once:
        as_json([line._asdict() for line in chosen])
    elif json_wanted:
        for line in chosen:
            as_json(line._asdict(), indent=None)
    else:
        return _print(chosen)
    return True


def _print(chosen: Iterable[LogLine]) -> bool:
    """Print lines; return whether there were any."""
    some = False
    for line in chosen:
        head = " ".join(field for field in line[:-1] if field not in ("", "-"))
        say(f"{head}: {line.text}" if head else line.text)
        some = True
    return some


def _fits(line: LogLine, node: str, task: str) -> bool:
    phase = line.task.partition("/")[0]
    of_task = task in ("", line.task, line.function, phase) or phase.startswith(f"{task}.")
    return of_task and node in ("", line.node)


def _over(run: RunFolder) -> bool:
    """Whether no more output can follow; a submitted run may not have started yet."""
    state = run.state
    if state == "new" and time.time() - run.created > UNSTARTED:
        raise UsageError(f"{run.name} was never started; start it with: qtide resume {run.name}")
    return state not in ("new", "running")
