"""qtide export and qtide engine: workflows for other engines, and records of runs."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say, warn
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.run import takes_spec
from qtide.interfaces.cli.service import Everybody, Url, client, moment
from qtide.interfaces.cli.shared_options import Json
from qtide.runs.driver import ENGINES
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec


def ro_crate(
    run: shared_options.Run,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR|FILE.zip", help="New folder or archive."),
    ] = None,
    licence: Annotated[
        str, typer.Option(metavar="URL", help="Licence of the program and the results.")
    ] = "not stated",
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Write the record of a finished run: program, inputs, phases, resources, device and results.

    Example: qtide export ro-crate last -o record.zip
    """
    from qtide.interfaces.export.crate import export_crate

    found = RunFolder.find(runs, run)
    written = export_crate(found, output or Path(f"{found.name}-crate"), licence)
    if found.distrust is not None:
        warn(f"its program and the results of its phases are left out: {found.distrust}")
    if json:
        as_json({"run": found.name, "crate": str(written)})
        return
    say(f"the record of {found.name} is in {written}")


@takes_spec
def cwl(
    spec: Spec,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="New folder.")
    ] = Path("workflow"),
    json: Json = False,
) -> None:
    """Write a program as a CWL workflow, with a mapping of its steps for StreamFlow.

    Example: qtide export cwl synthetic published -o workflow
    """
    from qtide.interfaces.export.cwl import export_cwl

    run = export_cwl(spec, output)
    if json:
        as_json({"folder": str(run.path), "workflow": str(run.path / "workflow.cwl")})
        return
    say(f"the workflow is in {run.path}; run it there with either of:")
    say("  cwltool --enable-ext workflow.cwl inputs.yml")
    say("  streamflow run streamflow.yml")


def trace(
    run: Annotated[
        str,
        typer.Argument(
            metavar="[RUN]",
            help="Name of a run or a prefix of it, its folder, or `last`.",
            autocompletion=shared_options.runs,
        ),
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Export a device of the service instead of a run.")
    ] = "",
    since: Annotated[
        str, typer.Option(help="Start for a device: a date, or days ago such as 0.5d.")
    ] = "0.04d",
    everybody: Everybody = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File.  [default: NAME-trace.json]"),
    ] = None,
    url: Url = None,
    runs: shared_options.Runs = shared_options.RUNS,
    json: shared_options.Json = False,
) -> None:
    """Write what a run or a device did as a trace for Perfetto: open it at ui.perfetto.dev.

    Example: qtide export trace last -o trace.json
    """
    from qtide.interfaces.export.trace import trace_device, trace_run

    if bool(run) == bool(device):
        raise UsageError("name either a run, or a device with --device")
    if run:
        found = RunFolder.find(runs, run)
        name = found.name
        written = trace_run(found, output or Path(f"{name.replace('/', '-')}-trace.json"))
    else:
        name, begin, service = device, moment(since) or 0.0, client(url)
        # newest first: what was submitted before then is of no interest
        listed = takewhile(
            lambda task: float(task["submitted"]) >= begin,
            (task.response for task in service.tasks(everybody=everybody)),
        )
        tasks = [task for task in listed if task["device"] == device]
        path = f"/v1/devices/{quote(device, safe='')}/history"
        history = service.call("GET", path, {"since": begin})
        written = trace_device(device, tasks, history, output or Path(f"{device}-trace.json"))
    if json:
        as_json({"of": name, "trace": str(written)})
        return
    say(f"the trace of {name} is in {written}; open it at https://ui.perfetto.dev")


export = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Export a program as a workflow for other engines, or a run as a record.",
)


@export.callback()
def _group() -> None:
    """Keep each export a subcommand, whatever their number."""


export.command("ro-crate", cls=PlainCommand)(ro_crate)
export.command("trace", cls=PlainCommand)(trace)

WITH_SPEC = {"export": {"cwl": cwl}}
"""Subcommands of each group that take a program and the options of its run."""


engine = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Install workflow engines, each in its own environment.",
)


@engine.callback()
def _engine_group() -> None:
    """Keep `install` a subcommand although it is the only one."""


@engine.command("install", cls=PlainCommand)
def install(
    name: Annotated[
        str, typer.Argument(metavar="ENGINE", help="Name of the engine: streamflow.")
    ] = "streamflow",
    json: Json = False,
) -> None:
    """Install an engine for `qtide run --strategy workflow --engine NAME`, once per user.

    Example: qtide engine install streamflow
    """
    installed = getattr(ENGINES.load(name), "install", None)
    if installed is None:
        raise UsageError(f"qtide does not install the engine {name}; see its own documentation")
    place = str(installed())
    if json:
        as_json({"engine": name, "folder": place})
    else:
        say(f"{name} is in {place}")
