"""Requests in Slurm's queue: each waits there until it is granted or given up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
from qtide.backends.clusters.slurm.companion import Companion, ControllerAway
from qtide.backends.clusters.slurm.queue import entries
from qtide.core.errors import NotEnoughNodes
from qtide.core.forecasts import Wait
from qtide.core.job import JobContext
from qtide.core.world.real import RealWorld

AWAY_LIMIT, AWAY_PAUSE = 300.0, 0.5
"""Seconds that Slurm's controller may be down, and between two tries."""
LOOK_FIRST, LOOK_MOST = 1.0, 30.0
"""Seconds between two looks at the queue while a request waits in it."""


class QueuedTooLong(NotEnoughNodes):
    """A request waited in Slurm's queue for longer than its user allows."""

    exit_code = 1


@dataclass(eq=False)
class Place:
    """A place in Slurm's queue: for which job, for what, and what Slurm says about it."""

    job: JobContext
    wait: Wait
    sought: str = "nodes"
    reason: str = "not known"


class Requests:
    """Gets companions from one Slurm, within the wait that the user allows."""

    def __init__(self, world: RealWorld, slurm: Slurm, limit: float) -> None:
        self.world = world
        self._slurm = slurm
        self._limit = limit

    async def granted(self, place: Place, words: list[str]) -> Companion:
        """Wait for as long as the user allows."""
        companion = await self.granted_within(self._limit, place, words)
        if companion is None:
            raise QueuedTooLong(
                f"{place.job.name} waited in Slurm's queue for {self._limit:g} s ({place.reason}) "
                "and gave up; finished phases are kept, resume it later"
            )
        return companion

    async def granted_within(
        self, limit: float, place: Place, words: list[str]
    ) -> Companion | None:
        """Wait for up to `limit` seconds; if the controller is down, wait until it is back."""
        last = asyncio.get_running_loop().time() + AWAY_LIMIT
        while True:
            try:
                return await self._try(limit, place, words)
            except ControllerAway:
                if asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(AWAY_PAUSE)

    async def _try(self, limit: float, place: Place, words: list[str]) -> Companion | None:
        companion = await Companion.submit(self._slurm, words, place.sought)
        look = asyncio.create_task(self._look(place, companion))
        try:
            await asyncio.wait({companion.granted}, timeout=limit)
            granted = companion.granted.done() or await companion.withdraw()
            if granted and companion.granted.result():
                return companion
        except BaseException:
            await self.world.settled([self.world.start(companion.end())])
            raise
        finally:
            look.cancel()
        await companion.end()
        return None

    async def _look(self, place: Place, companion: Companion) -> None:
        """Record when Slurm expects to start it, and why it waits."""
        pause = LOOK_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK_MOST)
            if companion.job is None:
                continue
            with suppress(SlurmFailed):
                for entry in await entries(self._slurm, f"--jobs={companion.job}"):
                    place.reason = entry.reason
                    start = (entry.start or 0.0) / self.world.scale
                    place.wait.announced = start - place.wait.since
