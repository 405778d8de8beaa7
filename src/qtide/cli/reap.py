"""qtide reap: end what dead drivers left in Slurm's queue."""

from __future__ import annotations

import asyncio

from qtide.cli import options
from qtide.cli.console import as_json, out
from qtide.slurm.commands import Slurm
from qtide.slurm.reaper import reap as end_orphans


def reap(json: options.Json = False) -> None:
    """Cancel Slurm jobs of yours whose qtide driver on this machine is dead.

    Example: qtide reap
    """
    ended = asyncio.run(end_orphans(Slurm()))
    if json:
        as_json({"cancelled": ended})
    else:
        out.print(f"cancelled: {', '.join(map(str, ended)) or 'nothing was left'}", markup=False)
