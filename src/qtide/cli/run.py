"""qtide run: a program under a strategy."""

from __future__ import annotations

from pathlib import Path

from qtide.cli import options
from qtide.cli.auto import decided
from qtide.cli.output import play_one
from qtide.cli.program import takes_spec
from qtide.programs.arguments import parse
from qtide.programs.load import load
from qtide.runs.folder import RunFolder, stamp
from qtide.runs.precedent import with_precedent
from qtide.runs.site import check_site
from qtide.runs.spec import Spec


@takes_spec
def run(
    spec: Spec,
    name: options.Name = "",
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Run a hybrid program; options that qtide does not know are passed to it.

    Example: qtide run synthetic published --time-scale 0.01
    """
    title = check(spec)
    spec = with_precedent(decided(spec, runs), runs)
    play_one(RunFolder.create(runs, name or f"{title}-{stamp()}", spec), json_wanted=json)


def check(spec: Spec) -> str:
    """Check everything before anything is written; return the program's name."""
    check_site(spec)
    program = load(spec.program)
    args, kwargs = parse(program, spec.words)
    program.prepare(args, kwargs, seed=spec.seed, folder=Path(), target=None).close()
    return program.name
