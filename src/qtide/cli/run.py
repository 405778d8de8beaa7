"""qtide run: a program under a strategy."""

from __future__ import annotations

from qtide.cli import options
from qtide.cli.output import play_one
from qtide.cli.program import takes_spec
from qtide.runs.spec import Spec
from qtide.runs.start import create


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
    play_one(create(spec, runs, name), json_wanted=json)
