"""qtide run: a program under a strategy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import options
from qtide.cli.output import play_one
from qtide.programs.arguments import parse
from qtide.programs.load import load
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.site import check_site
from qtide.runs.spec import Spec
from qtide.strategies.strategy import STRATEGIES


@options.takes_spec
def run(
    spec: Spec,
    strategy: Annotated[
        str, typer.Option(help="static, malleable, workflow, split or elastic.")
    ] = "elastic",
    name: Annotated[str, typer.Option(help="The run's name. [default: program and time]")] = "",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Run a hybrid program. What qtide does not know are the program's own arguments.

    Example: qtide run synthetic published --quantum-s 1 --time-scale 0.01 --strategy elastic
    """
    spec = replace(spec, strategy=strategy)
    title = check(spec)
    play_one(RunFolder.create(runs, name or f"{title}-{stamp()}", spec), json_wanted=json)


def check(spec: Spec) -> str:
    """Find what is wrong before anything is written; the program's name if nothing is."""
    STRATEGIES.load(spec.strategy)
    check_site(spec)
    program = load(spec.program)
    args, kwargs = parse(program, spec.words)
    program.prepare(args, kwargs, seed=spec.seed, folder=Path()).close()
    return program.name
