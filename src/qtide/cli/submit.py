"""qtide submit: leave a run to a driver of its own, and return."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.cli.run import check
from qtide.errors import QtideError, UsageError
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.spec import Spec

DRIVERS = ("background", "slurm")
LIMIT = 60.0
"""Seconds within which a driver in the background has to be at work, and sbatch to answer."""


@options.takes_spec
def submit(
    spec: Spec,
    strategy: Annotated[
        str, typer.Option(help="static, malleable, workflow, split or elastic.")
    ] = "elastic",
    driver: Annotated[
        str, typer.Option(help="background: a process of this machine; slurm: a job of its own.")
    ] = "background",
    driver_option: Annotated[
        list[str] | None,
        typer.Option(help="One more option of the driver's sbatch, as --driver-option=--time=60."),
    ] = None,
    name: Annotated[str, typer.Option(help="The run's name. [default: program and time]")] = "",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Start a run and return; follow it with `qtide show`, end it with `qtide cancel`.

    Example: qtide submit synthetic published --time-scale 0.1 --name night && qtide show night
    """
    spec = replace(spec, strategy=strategy)
    title = check(spec)
    if driver not in DRIVERS:
        raise UsageError(f"--driver is {' or '.join(DRIVERS)}, not {driver!r}")
    run = RunFolder.create(runs, name or f"{title}-{stamp()}", spec)
    if driver == "slurm":
        where = f"job {_as_job(run, driver_option or [])}"
    else:
        where = f"process {_in_background(run)}"
    if json:
        as_json({"run": run.name, "folder": str(run.path), "driver": where})
    else:
        out.print(f"{run.name} is driven by {where}; see: qtide show {run.name}", markup=False)


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


def _in_background(run: RunFolder) -> int:
    """A driver in a session of its own: it outlives this terminal."""
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
            raise QtideError(f"the driver of {run.name} did not start: {said or 'no word of it'}")
        time.sleep(0.05)
    return process.pid


def _as_job(run: RunFolder, extra: list[str]) -> int:
    """A driver as a small batch job; it needs no node to itself."""
    script = f"#!/bin/sh\nexec {shlex.join(_command(run))}\n"
    words = ["sbatch", "--parsable", "--ntasks=1", f"--job-name=qtide-driver-{run.name}"]
    log = str((run.path / "driver.log").absolute()).replace("%", "%%")
    words += [f"--output={log}", f"--chdir={Path.cwd()}", *extra]
    try:
        done = subprocess.run(
            words, input=script, capture_output=True, text=True, timeout=LIMIT, check=True
        )
    except FileNotFoundError:
        raise UsageError("there is no sbatch here; --driver background needs none") from None
    except subprocess.CalledProcessError as error:
        raise QtideError(
            f"sbatch refused the driver of {run.name}: {error.stderr.strip()}"
        ) from None
    except subprocess.TimeoutExpired:
        raise QtideError(f"sbatch gave no answer within {LIMIT:g} s") from None
    return int(done.stdout.strip().partition(";")[0])
