"""qtide export cwl: a program as a workflow for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli.console import as_json, out
from qtide.cli.options import Json
from qtide.cli.program import takes_spec
from qtide.runs.spec import Spec


@takes_spec
def cwl(
    spec: Spec,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The new folder.")
    ] = Path("workflow"),
    json: Json = False,
) -> None:
    """Write a program as a CWL workflow, with a mapping of its steps for StreamFlow.

    Example: qtide export cwl synthetic published -o workflow
    """
    from qtide.export.cwl.export import export_cwl

    run = export_cwl(spec, output)
    if json:
        as_json({"folder": str(run.path), "workflow": str(run.path / "workflow.cwl")})
        return
    out.print(f"the workflow is in {run.path}; run it there with either of:", markup=False)
    out.print("  cwltool --enable-ext workflow.cwl inputs.yml", markup=False, highlight=False)
    out.print("  streamflow run streamflow.yml", markup=False, highlight=False)
