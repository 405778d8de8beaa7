"""Errands: what goes on beside whoever started it; none of them fails without a word."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any

from qtide.world import Future, World

log = logging.getLogger(__name__)


class Errands:
    """The errands that are under way."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Let something go on by itself."""
        errand = self._world.start(work)
        self._running.add(errand)
        errand.add_done_callback(self._done)
        return errand

    async def cancel(self) -> None:
        """End all of them, and wait until they have cleaned up."""
        await self._world.cancel(list(self._running))

    def _done(self, errand: Future[None]) -> None:
        self._running.discard(errand)
        if not errand.cancelled() and (error := errand.exception()) is not None:
            log.error("errand failed", exc_info=error)
