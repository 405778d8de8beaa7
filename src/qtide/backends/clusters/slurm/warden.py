"""The warden: a process beside a driver that cancels the driver's queued requests if it is killed.

A granted companion ends with the pipe to its driver. A queued one does not read its pipe yet: its
salloc would keep waiting and get nodes that nobody wants. The warden also waits at the end of a
pipe, and cancels what its driver left behind. If it is stopped when the driver dies, the kernel
continues it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from qtide.core.processes import wake_at_parents_death

if TYPE_CHECKING:
    from qtide.backends.clusters.slurm.commands import Slurm
    from qtide.backends.clusters.slurm.mark import Driver


COMMAND = (sys.executable, "-c", "from qtide.backends.clusters.slurm.warden import main; main()")
ALL_IS_WELL = b"."
"""What a driver writes to the pipe after it has released everything."""
PAUSE = 0.25
"""Seconds between two checks of the queue."""
QUIET = 10.0
"""Seconds without a leftover after which the warden ends; a salloc may just have started."""
LIMIT = 300.0
"""Maximum seconds to wait for Slurm's controller; after that, `qtide reap` must clean up."""
RESTARTS = 10
"""How often a driver replaces a killed warden."""
POLITE = 5.0
"""Seconds within which a dismissed warden must end."""


class Warden:
    """The driver's end of the pipe."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._process: asyncio.subprocess.Process | None = None
        self._keeper = asyncio.create_task(self._keep())

    async def dismiss(self) -> None:
        """End the warden, as everything has been released."""
        self._keeper.cancel()
        await asyncio.wait({self._keeper})
        if self._process is not None and self._process.returncode is None:
            await self._end(self._process)

    async def _keep(self) -> None:
        """Keep a warden running while the driver lives; the driver continues if it cannot start."""
        # imported late, so that the warden's own process, which imports this file, starts quickly
        from qtide.backends.clusters.slurm.commands import SlurmFailed
        from qtide.backends.clusters.slurm.mark import Driver

        words = (*COMMAND, Driver.own().comment())
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        with suppress(OSError, SlurmFailed):
            for _ in range(RESTARTS):
                self._process = await self._slurm.start(*words, stdin=pipe, stderr=nothing)
                await self._process.wait()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        with suppress(ConnectionError):
            process.stdin.write(ALL_IS_WELL)
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), POLITE)
        except TimeoutError:
            process.kill()
            await process.wait()


def main() -> None:
    """Wait for the driver's end, then clean up; imports happen only then."""
    wake_at_parents_death()
    if sys.stdin.buffer.read(1) == ALL_IS_WELL:
        return
    from qtide.backends.clusters.slurm.commands import Slurm, SlurmFailed
    from qtide.backends.clusters.slurm.mark import Driver

    driver = Driver.read(sys.argv[1])
    if driver is not None:
        with suppress(SlurmFailed):
            asyncio.run(_sweep(Slurm(), driver))


async def _sweep(slurm: Slurm, driver: Driver) -> None:
    """Cancel what the driver left behind, until nothing has been found for a while."""
    from qtide.backends.clusters.slurm.commands import SlurmFailed
    from qtide.backends.clusters.slurm.mark import reap_after

    last, calm = time.monotonic() + LIMIT, time.monotonic() + QUIET
    while time.monotonic() < min(calm, last):
        slurm.check()
        try:
            found = bool(await reap_after(slurm, driver))
        except SlurmFailed:  # the controller is down
            found = True
        if found:
            calm = time.monotonic() + QUIET
        await asyncio.sleep(PAUSE)
