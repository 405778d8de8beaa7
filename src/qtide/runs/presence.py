"""The driver's files in a run's folder: where it is, and whether it should cancel the run.

Both are files, so they work from every host that sees the folder.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from qtide.core.files import Damaged, read_json, write_json

if TYPE_CHECKING:  # commands that only look at runs are faster without
    from qtide.core.world.world import Future, World

T = TypeVar("T")

PAUSE = 0.5
"""Real seconds between checks for a cancel request."""
BEAT = 10
"""Number of checks between two signs of life."""
LAUNCHED_BY = "QTIDE_DRIVER"
"""Environment variable naming the kind of cluster a driver was launched on."""


def where(driver: Mapping[str, Any]) -> str:
    """Describe where a driver is."""
    job = f", job {driver['job']}" if driver["job"] else ""
    return f"process {driver['pid']} on {driver['host']}{job}"


class Presence:
    """What the folder of a run says about its driver."""

    def __init__(self, folder: Path) -> None:
        self._driver = folder / "driver.json"
        self._cancel = folder / "cancel"

    def arrive(self, cluster: str) -> None:
        """Register this process as the run's driver and drop any earlier cancel request.

        The process may be a job of the cluster it was launched on, or of the run's cluster.
        """
        from qtide.backends.clusters.kind import CLUSTERS  # only drivers need it

        self._cancel.unlink(missing_ok=True)
        place = {"host": socket.gethostname(), "pid": os.getpid(), "cluster": None, "job": None}
        for name in filter(None, (os.environ.get(LAUNCHED_BY), cluster)):
            job = CLUSTERS.load(name).own_job()
            if job is not None:
                place |= {"cluster": name, "job": job}
                break
        write_json(self._driver, place)

    @property
    def driver(self) -> dict[str, Any] | None:
        """Location of the last driver; None if there was none or its file is damaged."""
        try:
            found = read_json(self._driver)
        except (FileNotFoundError, Damaged):
            return None
        return found if found.keys() >= {"host", "pid", "cluster", "job"} else None

    @property
    def damage(self) -> str | None:
        """Why the driver's location is unknown; None if it is known or there was no driver."""
        if self.driver is not None or not self._driver.exists():
            return None
        return f"{self._driver} is damaged: it is not known where the driver was"

    @property
    def cancel_requested(self) -> bool:
        """Whether a user has asked to cancel the run."""
        return self._cancel.exists()

    def request_cancel(self) -> None:
        """Ask the driver, wherever it is, to release everything and end the run."""
        self._cancel.touch()

    async def during(
        self, world: World, work: Coroutine[Any, Any, T], beat: Callable[[], None]
    ) -> T:
        """Do the work, calling `beat` every few seconds of real time.

        Raises CancelledError if a user asks to cancel the run.
        """
        from asyncio import CancelledError

        if world.is_virtual:  # it ends before a user could cancel it
            return await work
        task = world.start(work)
        both: list[Future[Any]] = [task, world.start(self._watch(world, beat))]
        try:
            await world.first_of(both)
            if not task.done():
                raise CancelledError
            return task.result()
        finally:
            await world.cancel(both)

    async def _watch(self, world: World, beat: Callable[[], None]) -> None:
        """Call `beat` regularly; return when the run should be cancelled."""
        for number in count(1):
            if self.cancel_requested:
                return
            if number % BEAT == 0:
                beat()
            await world.sleep(world.counted(PAUSE))
