"""qtide export ro-crate: the record of a finished run, as a Workflow Run RO-Crate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.runs.folder import RunFolder


def ro_crate(
    run: options.Run,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR|FILE.zip", help="The new folder or archive."),
    ] = None,
    licence: Annotated[
        str, typer.Option(metavar="URL", help="The licence of program and results.")
    ] = "not stated",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Write the record of a finished run: program, inputs, phases, resources, device and results.

    Example: qtide export ro-crate last -o record.zip
    """
    from qtide.export.crate.write import export_crate

    found = RunFolder.find(runs, run)
    written = export_crate(found, output or Path(f"{found.name}-crate"), licence)
    if json:
        as_json({"run": found.name, "crate": str(written)})
        return
    out.print(f"the record of {found.name} is in {written}", markup=False, highlight=False)
