"""qtide queue: the waiting and running tasks at the vQPU service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qtide.cli import options
from qtide.cli.console import as_json
from qtide.cli.service import Everybody, Url, client, clock, show_rows


def queue(
    all_states: Annotated[bool, typer.Option("--all", help="Include finished tasks.")] = False,
    everybody: Everybody = False,
    url: Url = None,
    json: options.Json = False,
) -> None:
    """Show your tasks: where they stand, why they wait, when they should start.

    Example: qtide queue --everybody
    """
    states = () if all_states else ("queued", "running")
    tasks = [task.said for task in client(url).tasks(*states, everybody=everybody)]
    if json:
        as_json(tasks)
        return
    tasks.sort(key=lambda task: (task["device"], task.get("position") or 0, task["submitted"]))
    show_rows([_row(task) for task in tasks], "no task waits or runs")


def _row(task: dict[str, Any]) -> dict[str, Any]:
    waiting = task["ended"] is None
    return {
        "task": task["id"][:8],
        "device": task["device"],
        "user": task["user"],
        "account": task["account"] or None,
        "job": task["job"],
        "state": task["state"],
        "place": task.get("position"),
        "why": task.get("reason") or task["error"],
        "start": clock(task.get("expected_start") if waiting else task["started"]),
        "end": clock(task.get("expected_end") if waiting else task["ended"]),
        "qpu s": f"{task['expected_seconds'] if waiting else task['qpu_seconds']:.3g}",
    }
