"""qtide resume: continue a run where its journal ends, or resume a drained device."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.console import err
from qtide.cli.drain import resume_device
from qtide.cli.output import play_one
from qtide.cli.service import Url
from qtide.errors import UsageError
from qtide.runs.folder import RunFolder


def resume(
    run: options.Run = "",
    device: Annotated[
        str, typer.Option(help="Instead of a run: a device of the vQPU service; for operators.")
    ] = "",
    url: Url = None,
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Resume a run that failed, was interrupted or was killed; finished phases are not repeated.

    Example: qtide resume last
    """
    if bool(run) == bool(device):
        raise UsageError("name either a run, or a device with --device")
    if device:
        resume_device(device, url, json_wanted=json)
        return
    folder = RunFolder.find(runs, run)
    if folder.state == "done":
        err.print(f"{folder.name} is done already; its result is taken from the journal")
    play_one(folder, json_wanted=json)
