"""qtide drain: let a device of the vQPU service start no new task."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.cli.service import Url, client


def drain(
    device: Annotated[str, typer.Argument(help="The device's name.")],
    reason: Annotated[
        str | None, typer.Option(help="What users are told.  [default: maintenance]")
    ] = None,
    licences: Annotated[
        bool, typer.Option("--licences", help="Let Slurm grant fewer licences meanwhile.")
    ] = False,
    url: Url = None,
    json: options.Json = False,
) -> None:
    """Start no new task on a device: running tasks end, new ones are queued. For operators.

    Example: qtide drain star --reason "cooling, back at 14:00"

    To resume it: qtide resume --device star
    """
    path = f"/v1/devices/{quote(device, safe='')}/drain"
    said = client(url).call("POST", path, form={"reason": reason, "licences": licences})
    if json:
        as_json(said)
    else:
        out.print(f"{device} is {said['state']}; {said['waiting']} tasks wait", markup=False)


def resume_device(device: str, url: str | None, *, json_wanted: bool) -> None:
    """Resume a drained device."""
    said = client(url).call("POST", f"/v1/devices/{quote(device, safe='')}/resume")
    if json_wanted:
        as_json(said)
    else:
        out.print(f"{device} is {said['state']}; {said['waiting']} tasks wait", markup=False)
