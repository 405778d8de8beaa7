"""qtide cancel: end a run, wherever its driver is, or a task at the vQPU service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.service import Url, client
from qtide.interfaces.python.run import Run
from qtide.runs.folder import RunFolder

if TYPE_CHECKING:
    from qtide.backends.client.client import RemoteTask


TASK = re.compile(r"[0-9a-f][0-9a-f-]{3,35}")
"""Pattern of a task's id or a prefix of it."""

Name = Annotated[
    str,
    typer.Argument(
        metavar="RUN|TASK",
        help="Name of a run, its folder, or `last`; or id of a task. A prefix is enough.",
        autocompletion=shared_options.runs,
    ),
]


def cancel(
    name: Name,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Also delete the task's payload and answer at the service."),
    ] = False,
    url: Url = None,
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Cancel a run from any host that sees its folder, or a task at the service.

    Example: qtide cancel last

    A run can be resumed. A task is cancelled by its owner or an operator:

    qtide cancel 1f3b5c7d
    """
    task = None if _is_run(runs, name) else _task(runs, name, url)
    if task is None and forget:
        raise UsageError(f"{name!r} is a run; --forget is for tasks at the service")
    if task is None:
        _cancel_run(RunFolder.find(runs, name).trusted(), json_wanted=json)
    elif forget:
        _forget_task(task, json_wanted=json)
    else:
        _cancel_task(task, json_wanted=json)


def _is_run(runs: Path, name: str) -> bool:
    """Whether the name can only belong to a run."""
    exact = any((path / "run.json").is_file() for path in (runs / name, Path(name)))
    return exact or not TASK.fullmatch(name)


def _task(runs: Path, name: str, url: str | None) -> RemoteTask | None:
    """Return the task with that id; None if the name means a run."""
    from qtide.backends.client.client import ServiceFailed

    like = [each for each in RunFolder.names(runs) if each.startswith(name)]
    try:
        found = client(url).task(name)
    except ServiceFailed as error:
        if like and error.status in (0, 401, 404):  # the name means a run
            return None
        if error.status == 404:
            raise UsageError(f"there is no run {name!r} in {runs}, and {error}") from None
        raise
    except UsageError:  # no service is known
        return None
    if like:
        raise UsageError(
            f"{name!r} may be the run {like[0]} or the task {found.id}; give more characters"
        )
    return found


def _cancel_task(task: RemoteTask, *, json_wanted: bool) -> None:
    if task.response["ended"] is not None:
        raise UsageError(f"the task {task.id} is over already; it is {task.state}")
    task.cancel()
    if json_wanted:
        as_json({"task": task.id, "state": task.state})
    elif task.response["ended"] is None:
        say(f"task {task.id} ends as soon as the device releases it")
    else:
        say(f"task {task.id} is {task.state}")


def _forget_task(task: RemoteTask, *, json_wanted: bool) -> None:
    task.forget()
    if json_wanted:
        as_json({"task": task.id, "state": "forgotten"})
    else:
        say(f"task {task.id} is forgotten; its usage stays in the accounts")


def _cancel_run(folder: RunFolder, *, json_wanted: bool) -> None:
    Run[Any](folder).cancel()
    if json_wanted:
        as_json({"run": folder.name, "state": folder.state})
    else:
        say(f"{folder.name} is {folder.state}; continue with: qtide resume {folder.name}")
