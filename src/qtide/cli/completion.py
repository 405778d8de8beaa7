"""What a shell may complete: runs, strategies, clusters, QPUs, applications.

Everything is imported only when it is needed: commands load this module on every call.
"""

from __future__ import annotations

from pathlib import Path

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
    from qtide.runs.advised import ADVISERS

    return [*strategies(), *ADVISERS.names()]


def clusters() -> list[str]:
    """The kinds of clusters."""
    from qtide.clusters.kind import CLUSTERS

    return CLUSTERS.names()


def driver_places() -> list[str]:
    """The values of --driver."""
    from qtide.runs.start import BACKGROUND, drivers

    return [BACKGROUND, *drivers()]


def qpus() -> list[str]:
    """The devices, and the timing profiles of emulated ones."""
    from qtide.devices.kinds import DEVICES
    from qtide.devices.profile import profiles

    return sorted({*DEVICES.names(), *profiles()})


def programs() -> list[str]:
    """The applications; the shell itself completes files."""
    from qtide.programs.load import APPS

    return APPS.names()
