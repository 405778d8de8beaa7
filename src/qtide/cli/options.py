"""The options and arguments that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import completion

RUNS = Path("qtide-runs")

Runs = Annotated[
    Path,
    typer.Option(envvar="QTIDE_RUNS", show_envvar=False, help="Folder of runs (QTIDE_RUNS)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Option(help="Its name.  [default: program and time]")]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's name or a prefix of it, its folder, or `last`.",
        autocompletion=completion.runs,
    ),
]
