"""qtide submit: start a run in the background, with its own driver."""

from __future__ import annotations

from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, out
from qtide.cli.program import takes_spec
from qtide.runs.spec import Spec
from qtide.runs.start import BACKGROUND, check_driver, create, launch


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
    check_driver(driver)
    run = create(spec, runs, name)
    where = launch(run, driver, driver_option)
    if json:
        as_json({"run": run.name, "folder": str(run.path), "driver": where})
    else:
        out.print(f"{run.name} is driven by {where}; see: qtide show {run.name}", markup=False)
