"""The line before Slurm's resources: a request stands in it until it is granted or given up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from qtide.clusters.cluster import NotEnoughNodes
from qtide.jobs.job import Job
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.companion import Companion, ControllerAway
from qtide.slurm.queue import entries
from qtide.world.real import RealWorld

AWAY_LIMIT, AWAY_PAUSE = 300.0, 0.5
"""Seconds that Slurm's controller may be away, and between two tries."""
OUTLOOK_FIRST, OUTLOOK_MOST = 1.0, 30.0
"""Seconds between two looks at the queue while a request stands in it."""


class QueuedTooLong(NotEnoughNodes):
    """A request stood in Slurm's queue for longer than its user allows."""

    exit_code = 1


@dataclass(eq=False)
class Ask:
    """A request that stands in Slurm's queue, for nodes or for a QPU alone."""

    job: Job
    since: float
    nodes: int = 0
    least: int = 0
    patience: float = 0.0
    expected: float = 0.0
    """How long it should stand there in all, as Slurm sees it."""
    reason: str = "not known"

    @property
    def sought(self) -> str:
        """What it is for."""
        return "nodes" if self.nodes else "QPU"


class Line:
    """Gets companions from one Slurm, each for as long a wait as the user allows."""

    def __init__(self, world: RealWorld, slurm: Slurm, limit: float) -> None:
        self.world = world
        self._slurm = slurm
        self._limit = limit

    async def surely(self, ask: Ask, words: list[str]) -> Companion:
        """Wait for as long as the user allows."""
        companion = await self.stand(ask, words, self._limit)
        if companion is None:
            raise QueuedTooLong(
                f"{ask.job.name} stood in Slurm's queue for {self._limit:g} s ({ask.reason}) and "
                "gave up; what was done is kept, resume it later"
            )
        return companion

    async def stand(self, ask: Ask, words: list[str], limit: float) -> Companion | None:
        """Stand in the queue for up to `limit` seconds; a controller that is away is waited for."""
        last = asyncio.get_running_loop().time() + AWAY_LIMIT
        while True:
            try:
                return await self._try(ask, words, limit)
            except ControllerAway:
                if asyncio.get_running_loop().time() > last:
                    raise
                await asyncio.sleep(AWAY_PAUSE)

    async def _try(self, ask: Ask, words: list[str], limit: float) -> Companion | None:
        companion = await Companion.ask(self._slurm, words, ask.sought)
        outlook = asyncio.create_task(self._look_out(ask, companion))
        try:
            await asyncio.wait({companion.granted}, timeout=limit)
            granted = companion.granted.done() or await companion.withdraw()
            if granted and companion.granted.result():
                return companion
        except BaseException:
            await self.world.settled([self.world.start(companion.end())])
            raise
        finally:
            outlook.cancel()
        await companion.end()
        return None

    async def _look_out(self, ask: Ask, companion: Companion) -> None:
        """Learn when Slurm expects to start it, and why not now."""
        pause = OUTLOOK_FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, OUTLOOK_MOST)
            if companion.job is None:
                continue
            with suppress(SlurmFailed):
                for entry in await entries(self._slurm, f"--jobs={companion.job}"):
                    ask.reason = entry.reason
                    ask.expected = (entry.start or 0.0) / self.world.scale - ask.since
