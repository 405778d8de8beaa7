"""Background tasks: they run by themselves, and none fails silently."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from qtide.core.world.world import Future, World

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Seconds until a background task that keeps failing is tried again."""


class BackgroundTasks:
    """The running background tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Start a background task."""
        task = self._world.start(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def repeat(
        self,
        name: str,
        work: Callable[[], Awaitable[None]],
        pause: float,
        longest: float = LONGEST_PAUSE,
    ) -> None:
        """Do something again and again, whatever goes wrong: a failure is logged, and tried again.

        After each failure in a row the pause doubles, from a second to `longest`.
        """
        self.start(self._repeated(name, work, pause, longest))

    async def _repeated(
        self, name: str, work: Callable[[], Awaitable[None]], pause: float, longest: float
    ) -> None:
        failures = 0
        while True:
            try:
                await work()
                failures = 0
            except Exception as error:
                failures += 1
                log.error(  # noqa: TRY400 - the reason is enough, many times in a row
                    "background task failed and is tried again",
                    extra={"task": name, "why": f"{type(error).__name__}: {error}"},
                )
            delay = min(2.0 ** (failures - 1), longest) if failures else pause
            await self._world.sleep(delay)

    async def cancel(self) -> None:
        """Cancel all of them, and wait until they have cleaned up."""
        await self._world.cancel(list(self._running))

    def _done(self, task: Future[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", exc_info=error)
