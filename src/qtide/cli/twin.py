"""qtide twin: the parameters of a site, from its own runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from qtide.cli import completion, options
from qtide.cli.console import as_json, out
from qtide.cli.help import PlainCommand, PlainGroup
from qtide.cli.table import print_rows
from qtide.ledger.ledger import Interval
from qtide.runs.folder import RunFolder

twin = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="The twin of a site.",
)


@twin.callback()
def _group() -> None:
    """Keep `calibrate` a command of its own, although it is the only one."""


@twin.command("calibrate", cls=PlainCommand)
def calibrate(
    names: Annotated[
        str,
        typer.Argument(
            metavar="RUNS",
            help="Runs of single jobs, with commas between.",
            autocompletion=completion.runs,
        ),
    ],
    nodes: Annotated[int, typer.Option(min=1, help="The nodes of the site.")] = 3,
    site: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the site file there.")
    ] = None,
    runs: options.Runs = options.RUNS,
    json: options.Json = False,
) -> None:
    """Fit the parameters of a site to the ledgers of real runs.

    Example: qtide twin calibrate last --site site.toml
    """
    from qtide.twin.calibrate import calibrate as fit

    found = fit([_ended(RunFolder.find(runs, name)) for name in names.split(",")])
    if site is not None:
        site.write_text(found.toml(nodes))
    if json:
        as_json(asdict(found))
        return
    fitted = found.parameters | {f"task {name}": each for name, each in found.tasks.items()}
    print_rows(
        [
            {
                "what": name,
                "seconds": f"{each.value:.4g}",
                "±": f"{each.half:.2g}",
                "from": each.samples,
            }
            for name, each in fitted.items()
        ]
    )
    if site is not None:
        out.print(f"site: {site}", markup=False, highlight=False)


def _ended(run: RunFolder) -> list[Interval]:
    """What is known of a run to its end."""
    return [span for span in run.intervals() if not span.open_ended]
