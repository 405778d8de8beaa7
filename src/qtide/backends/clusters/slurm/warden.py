"""The warden: a process beside a driver that empties Slurm's queue of its requests if it is killed.

A companion that was granted ends with the pipe to its driver. One that is still queued does not
read its pipe yet: its salloc would wait on, and get nodes that nobody wants. The warden waits at
the end of a pipe as well, and then cancels what its driver left. Should it be stopped at that
moment, the kernel continues it.
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
"""What a driver that has given everything back writes into the pipe."""
PAUSE = 0.25
"""Seconds between two looks at the queue."""
QUIET = 10.0
"""Seconds without a find after which the warden ends: a salloc may just have started."""
LIMIT = 300.0
"""Seconds that Slurm's controller may be away; then it is left to `qtide reap`."""
RESTARTS = 10
"""How often a driver replaces a warden that was killed."""
POLITE = 5.0
"""Seconds within which a warden that is no longer needed has to end."""


class Warden:
    """The driver's end of the pipe."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._process: asyncio.subprocess.Process | None = None
        self._keeper = asyncio.create_task(self._keep())

    async def dismiss(self) -> None:
        """End it: everything was given back."""
        self._keeper.cancel()
        await asyncio.wait({self._keeper})
        if self._process is not None and self._process.returncode is None:
            await self._end(self._process)

    async def _keep(self) -> None:
        """Keep a warden running as long as the driver lives; a driver goes on without one."""
        # late, so that the warden's own process, which imports this file, starts quickly
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
    """Wait for the end of the driver; what this needs is imported only then."""
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
    """Cancel what the driver left, until nothing was found for a while."""
    from qtide.backends.clusters.slurm.commands import SlurmFailed
    from qtide.backends.clusters.slurm.mark import reap_after

    last, calm = time.monotonic() + LIMIT, time.monotonic() + QUIET
    while time.monotonic() < min(calm, last):
        slurm.check()
        try:
            found = bool(await reap_after(slurm, driver))
        except SlurmFailed:  # the controller is away
            found = True
        if found:
            calm = time.monotonic() + QUIET
        await asyncio.sleep(PAUSE)
