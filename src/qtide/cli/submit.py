"""qtide submit: start a run in the background, with its own driver."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.auto import decided
from qtide.cli.console import as_json, out
from qtide.cli.program import takes_spec
from qtide.cli.run import check
from qtide.clusters.kind import CLUSTERS, ClusterKind
from qtide.errors import QtideError, UsageError
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.precedent import with_precedent
from qtide.runs.spec import Spec

BACKGROUND = "background"
LIMIT = 60.0
"""Seconds within which a background driver has to start."""


@takes_spec
def submit(
    spec: Spec,
    driver: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="background, a process on this host; or a kind of cluster, for a job there.",
            autocompletion=completion.driver_places,
        ),
    ] = BACKGROUND,
    driver_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION", help="One more option for its job, such as --driver-option=--time=60."
        ),
    ] = None,
    name: options.Name = "",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Start a run and return; follow it with `qtide show`, cancel it with `qtide cancel`.

    Example: qtide submit synthetic --time-scale 0.1 --name night
    """
    title = check(spec)
    if driver != BACKGROUND and driver not in (known := drivers()):
        raise UsageError(f"--driver is {' or '.join((BACKGROUND, *known))}, not {driver!r}")
    spec = with_precedent(decided(spec, runs), runs)
    run = RunFolder.create(runs, name or f"{title}-{stamp()}", spec)
    where = _in_background(run) if driver == BACKGROUND else _as_job(run, driver, driver_option)
    if json:
        as_json({"run": run.name, "folder": str(run.path), "driver": where})
    else:
        out.print(f"{run.name} is driven by {where}; see: qtide show {run.name}", markup=False)


def drivers() -> list[str]:
    """The kinds of clusters that can run a driver as a job."""
    return [name for name in CLUSTERS.names() if _launches(CLUSTERS.load(name))]


def _launches(kind: type[ClusterKind]) -> bool:
    return any("launch_driver" in vars(each) for each in kind.mro() if each is not ClusterKind)


def _command(run: RunFolder) -> list[str]:
    place = run.path.absolute()
    return [
        sys.executable,
        "-m",
        "qtide.cli.main",
        "resume",
        place.name,
        "--runs",
        str(place.parent),
    ]


def _as_job(run: RunFolder, kind: str, extra: list[str] | None) -> str:
    """Start a driver as a job of a cluster."""
    launch = CLUSTERS.load(kind).launch_driver
    return launch(_command(run), run.path / "driver.log", run.name, extra or [])


def _in_background(run: RunFolder) -> str:
    """Start a driver in its own session: it outlives this terminal."""
    with (run.path / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            _command(run),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    limit = time.monotonic() + LIMIT
    while run.presence.driver is None:
        if process.poll() or time.monotonic() > limit:
            said = (run.path / "driver.log").read_text().strip()
            raise QtideError(
                f"the driver of {run.name} did not start: {said or 'it gave no reason'}"
            )
        time.sleep(0.05)
    return f"process {process.pid}"
