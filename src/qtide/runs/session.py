"""A session: runs on one cluster with one QPU, at once or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qtide.runs.aftermath import settle
from qtide.runs.driver import Outcome, Tell, drive
from qtide.runs.engines import engine_of
from qtide.runs.folder import RunFolder
from qtide.runs.precedent import recorded
from qtide.runs.site import is_virtual, leases, opened, world_for
from qtide.strategies.site import Site
from qtide.strategies.warm_up import WarmUp

Ended = Callable[[list[Outcome]], None]
"""Called with the outcomes of each group."""


def play(run: RunFolder, tell: Tell) -> Outcome:
    """Execute one run to its end."""
    settle(run)
    engine = engine_of(run.spec)
    if engine is not None:
        return engine.drive(run, tell)
    (outcomes,) = play_groups([[run]], tell, lambda _: None)
    return outcomes[0]


def play_groups(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
) -> list[list[Outcome]]:
    """Execute the runs of each group concurrently, and one group after the other.

    All are on the cluster that the first run's options name, each group with its own QPU. In real
    time they share warm agents, and nothing else; in virtual time, each group has its own world.
    """
    if is_virtual(groups[0][0].spec):
        return [outcomes for each in groups for outcomes in _session([each], tell, ended)]
    return _session(groups, tell, ended, warm_up)


def _session(
    groups: Sequence[Sequence[RunFolder]],
    tell: Tell,
    ended: Ended,
    warm_up: RunFolder | None = None,
) -> list[list[Outcome]]:
    first = groups[0][0]
    spec, device_log = first.spec, first.path / "device.log"
    world, durations = world_for(spec), recorded(spec)

    async def play_all() -> list[list[Outcome]]:
        async with opened(spec, world, device_log, durations) as site:
            if warm_up is not None:
                ended([await drive(warm_up, site, tell, WarmUp)])
            return [await group(site, runs) for runs in groups]

    async def group(site: Site, runs: Sequence[RunFolder]) -> list[Outcome]:
        site.cluster.forget()
        place = Site(world, site.cluster, site.qpu.renewed(leases(runs[0].spec)))
        outcomes = await world.all_of([drive(run, place, tell) for run in runs])
        for run in runs:
            run.note_durations(durations.used, durations.missing)
        ended(outcomes)
        return outcomes

    return world.run(play_all())
