"""The options and arguments that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def runs(context: typer.Context) -> list[str]:
    """The names of runs, the newest first."""
    from qtide.runs.folder import RunFolder

    root = Path(context.params.get("runs") or "qtide-runs")
    return ["last", *reversed(RunFolder.names(root))]


def reportable(context: typer.Context) -> list[str]:
    """The names of runs and of comparisons."""
    names = runs(context)
    return list(dict.fromkeys([*(name.partition("/")[0] for name in names), *names]))


def strategies() -> list[str]:
    """The names of strategies."""
    from qtide.strategies.strategy import STRATEGIES

    return STRATEGIES.names()


def strategies_and_advisers() -> list[str]:
    """The names of strategies, and of what chooses one."""
    from qtide.runs.start import ADVISERS

    return [*strategies(), *ADVISERS.names()]


def clusters() -> list[str]:
    """The kinds of clusters."""
    from qtide.backends.clusters.kind import CLUSTERS

    return CLUSTERS.names()


def driver_places() -> list[str]:
    """The values of --driver."""
    from qtide.runs.start import BACKGROUND, drivers

    return [BACKGROUND, *drivers()]


def qpus() -> list[str]:
    """The devices, and the timing profiles of emulated ones."""
    from qtide.backends.devices.device import DEVICES
    from qtide.backends.devices.profile import profiles

    return sorted({*DEVICES.names(), *profiles()})


def programs() -> list[str]:
    """The applications; the shell itself completes files."""
    from qtide.programs.program import APPS

    return APPS.names()


RUNS = Path("qtide-runs")

Runs = Annotated[
    Path,
    typer.Option(envvar="QTIDE_RUNS", show_envvar=False, help="Folder of the runs (QTIDE_RUNS)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Option(help="Name of the run.  [default: program and time]")]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Name of a run or a prefix of it, its folder, or `last`.",
        autocompletion=runs,
    ),
]
