"""A session: one or several runs at once on one cluster with one QPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qtide.runs.driver import Outcome, Tell, drive
from qtide.runs.folder import RunFolder
from qtide.runs.site import ground, world_for


def play(runs: Sequence[RunFolder], tell: Tell, log: Path | None = None) -> list[Outcome]:
    """Play runs side by side to their ends. They share what the first one's options name."""
    spec = runs[0].spec
    world = world_for(spec)
    log = log or runs[0].path / "agents.log"

    async def all_runs() -> list[Outcome]:
        async with ground(spec, world, log) as here:
            return await world.all_of([drive(run, here, tell) for run in runs])

    return world.run(all_runs())
