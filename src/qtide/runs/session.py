"""A session: runs on one cluster with one QPU, at once or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from qtide.runs.driver import Outcome, Tell, drive
from qtide.runs.folder import RunFolder
from qtide.runs.site import opened, qpu_for, world_for
from qtide.strategies.site import Site


def play(run: RunFolder, tell: Tell) -> Outcome:
    """Execute one run to its end."""
    (outcomes,) = play_groups([[run]], run.path / "agents.log", tell, lambda _: None)
    return outcomes[0]


def play_groups(
    groups: Sequence[Sequence[RunFolder]],
    log: Path,
    tell: Tell,
    ended: Callable[[list[Outcome]], None],
) -> list[list[Outcome]]:
    """Execute the runs of each group concurrently, and one group after the other, with warm agents.

    All share the cluster that the first run's options name; each group has its own QPU.
    """
    spec = groups[0][0].spec
    world = world_for(spec)

    async def play_all() -> list[list[Outcome]]:
        async with opened(spec, world, log) as site:
            return [await group(site, runs) for runs in groups]

    async def group(site: Site, runs: Sequence[RunFolder]) -> list[Outcome]:
        site.cluster.forget()
        place = replace(site, qpu=qpu_for(runs[0].spec, world))
        outcomes = await world.all_of([drive(run, place, tell) for run in runs])
        ended(outcomes)
        return outcomes

    return world.run(play_all())
