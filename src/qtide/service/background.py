"""Background tasks: they run by themselves, and none fails silently."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from qtide.world import Future, World

log = logging.getLogger(__name__)


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

    async def cancel(self) -> None:
        """Cancel all of them, and wait until they have cleaned up."""
        await self._world.cancel(list(self._running))

    def _done(self, task: Future[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", exc_info=error)
