"""qtide export and qtide engine: workflows for other engines, and records of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.core.errors import UsageError
from qtide.interfaces.cli import shared_options
from qtide.interfaces.cli.console import as_json, say
from qtide.interfaces.cli.help import PlainCommand, PlainGroup
from qtide.interfaces.cli.run import takes_spec
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
