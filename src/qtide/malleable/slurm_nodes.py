"""Nodes of a stock Slurm: each is a companion of its own, so that it can be given back alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from qtide.forecasts.waits import Waits
from qtide.jobs.job import Job
from qtide.malleable.nodes import Held, Nodes, Process
from qtide.slurm.commands import Slurm, SlurmFailed
from qtide.slurm.companion import Companion
from qtide.slurm.mark import Driver, job_name
from qtide.slurm.options import Options
from qtide.slurm.reaper import cancel, leftovers, reap
from qtide.slurm.requests import Place, Requests
from qtide.slurm.warden import Warden
from qtide.world.real import RealWorld


class SlurmNodes(Nodes):
    """The companions of one job; a warden empties the queue if the job is killed."""

    def __init__(self, slurm: Slurm, options: Options, job: Job) -> None:
        world = RealWorld()
        self._slurm = slurm
        self._options = options
        self._job = job
        self._waits = Waits(world.now)
        self._requests = Requests(world, slurm, options.queue_limit)
        self._warden = Warden(slurm)

    @staticmethod
    async def open(options: Options, job: Job) -> SlurmNodes:
        """The Slurm that SLURM_CONF names; companions of dead drivers are cancelled."""
        slurm = Slurm()
        slurm.check()
        await reap(slurm)
        return SlurmNodes(slurm, options, job)

    async def grant(self) -> Held:
        """Submit a companion, and wait until it is granted."""
        words = self._options.salloc(job_name(self._job), Driver.own().comment(), "1")
        with self._waits.standing() as wait:
            companion = await self._requests.granted(Place(self._job, wait), words)
        return _SlurmNode(companion, self._slurm, self._options)

    async def close(self) -> None:
        """Cancel requests of which we never heard, and dismiss the warden."""
        with suppress(SlurmFailed):
            await cancel(self._slurm, await leftovers(self._slurm, {job_name(self._job)}))
        await self._warden.dismiss()


class _SlurmNode(Held):
    def __init__(self, companion: Companion, slurm: Slurm, options: Options) -> None:
        assert companion.job is not None
        self.name = companion.nodes[0]
        self.label = str(companion.job)
        self._job = companion.job
        self._companion = companion
        self._slurm = slurm
        self._options = options

    async def start(self, words: list[str], variables: Mapping[str, str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *self._options.step(self._job, self.name, words),
            stdin=asyncio.subprocess.DEVNULL,
            env=self._slurm.environment | dict(variables),
            start_new_session=True,
        )

    async def gone(self) -> None:
        await self._companion.gone()

    async def end(self) -> None:
        await self._companion.end()
