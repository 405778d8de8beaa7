"""The reaper: cancels companions whose driver is dead, before their time limit ends them."""

from __future__ import annotations

import os
from collections.abc import Collection

from qtide.slurm.commands import Slurm
from qtide.slurm.mark import Driver
from qtide.slurm.queue import entries


async def reap(slurm: Slurm, names: Collection[str] = ()) -> list[int]:
    """Cancel companions of drivers that are known to be dead; return their jobs.

    Given the names of a run's companions, cancel those of every other driver: the lock on a run's
    journal lets only one driver live at a time, and that is us.
    """
    terms = [f"--user={os.getuid()}", *([f"--name={','.join(names)}"] if names else [])]
    own = Driver.own()
    orphans = {
        each.leader
        for each in await entries(slurm, *terms)
        if (driver := Driver.read(each.comment)) and driver != own and (names or driver.dead)
    }
    await cancel(slurm, orphans)
    return sorted(orphans)


async def reap_after(slurm: Slurm, driver: Driver) -> list[int]:
    """Cancel the companions of one driver, once it is dead; return their jobs."""
    found = await entries(slurm, f"--user={os.getuid()}") if driver.dead else []
    mine = driver.comment()
    left = {each.leader for each in found if each.comment == mine and each.state != "COMPLETING"}
    await cancel(slurm, left)
    return sorted(left)


async def leftovers(slurm: Slurm, names: Collection[str]) -> set[int]:
    """Companions of this process with these names that Slurm still has."""
    if not names:
        return set()
    mine = Driver.own().comment()
    found = await entries(slurm, f"--user={os.getuid()}", f"--name={','.join(names)}")
    return {each.leader for each in found if each.comment == mine and each.state != "COMPLETING"}


async def cancel(slurm: Slurm, jobs: Collection[int]) -> None:
    """Cancel jobs."""
    if jobs:
        await slurm.output("scancel", *map(str, jobs))
