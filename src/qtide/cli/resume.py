"""qtide resume: go on with a run where its journal ends."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.output import err, play_one
from qtide.runs.folder import RunFolder


def resume(
    run: Annotated[str, typer.Argument(help="A run's name, its folder, or `last`.")],
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Resume a run that failed, was interrupted or killed; finished phases are not run again.

    Example: qtide resume last
    """
    folder = RunFolder.find(runs, run)
    if folder.state == "done":
        err.print(f"{folder.name} is done already; its result is taken from the journal")
    play_one(folder, json_wanted=json)
