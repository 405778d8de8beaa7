"""qtide reap: cancel what dead drivers left in a cluster's queue."""

from __future__ import annotations

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.clusters.kind import CLUSTERS


def reap(json: options.Json = False) -> None:
    """Cancel your jobs whose qtide driver on this host is dead.

    Example: qtide reap
    """
    ended = [job for name in CLUSTERS.names() for job in CLUSTERS.load(name).reap()]
    if json:
        as_json({"cancelled": ended})
    else:
        out.print(f"cancelled: {', '.join(map(str, ended)) or 'nothing was left'}", markup=False)
