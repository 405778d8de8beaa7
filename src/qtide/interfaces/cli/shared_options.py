"""The options and arguments that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def runs(context: typer.Context) -> list[str]:
    """Return the names of runs, newest first."""
    from qtide.runs.folder import RunFolder

    root = Path(context.params.get("runs") or "qtide-runs")
    return ["last", *reversed(RunFolder.names(root))]


def reportable(context: typer.Context) -> list[str]:
    """Return the names of runs and comparisons."""
    names = runs(context)
    return list(dict.fromkeys([*(name.partition("/")[0] for name in names), *names]))


def strategies() -> list[str]:
    """Return the names of strategies."""
    from qtide.strategies.strategy import STRATEGIES

    return STRATEGIES.names()


def strategies_and_advisers() -> list[str]:
    """Return the names of strategies and of the advisers that choose one."""
    from qtide.runs.start import ADVISERS

    return [*strategies(), *ADVISERS.names()]


def clusters() -> list[str]:
    """Return the kinds of clusters."""
    from qtide.backends.clusters.kind import CLUSTERS

    return CLUSTERS.names()


def driver_places() -> list[str]:
    """Return the values of --driver."""
    from qtide.runs.start import BACKGROUND, drivers

    return [BACKGROUND, *drivers()]


def qpus() -> list[str]:
    """Return the devices and the timing profiles of emulated ones."""
    from qtide.backends.devices.device import DEVICES
    from qtide.backends.devices.profile import profiles

    return sorted({*DEVICES.names(), *profiles()})


def programs() -> list[str]:
    """Return the applications; the shell itself completes files."""
    from qtide.programs.program import APPS

    return APPS.names()


def published_items() -> list[str]:
    """Return the published tables and figures that can be made again."""
    from qtide.experiments.reproduction.reproduction import ITEMS

    return list(ITEMS)


RUNS = Path("qtide-runs")

Runs = Annotated[
    Path,
    typer.Option(envvar="QTIDE_RUNS", show_envvar=False, help="Folder of the runs (QTIDE_RUNS)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[
    str, typer.Option(help="Name of the run, numbered if taken.  [default: program and time]")
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Name of a run or a prefix of it, its folder, or `last`.",
        autocompletion=runs,
    ),
]
