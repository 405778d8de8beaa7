"""Endings: how a task ended is written first, then announced."""

from __future__ import annotations

import logging
from collections.abc import Callable

from qtide.payloads.encoded import Encoded
from qtide.service import records
from qtide.service.store import Action, Result, Store, StoreFailed
from qtide.service.task import Ending, State, Task
from qtide.world import World

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds until a write that the store refused is tried again."""


class Endings:
    """Every task ends here, once."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._store = store
        self.on_ended: Callable[[Task], None] = lambda _: None

    async def finish(
        self,
        task: Task,
        state: State,
        used: float = 0.0,
        error: str | None = None,
        answer: Encoded | None = None,
    ) -> None:
        """Record how a task ended, then announce it."""
        ending = Ending(state, self._world.now(), used, error)
        if await self.surely(records.finish(task, ending, answer)):
            task.end(ending, answer)
            self.on_ended(task)

    async def surely(self, action: Action[Result]) -> Result:
        """Write, and while the disk is full or locked, retry: nothing may be lost."""
        while True:
            try:
                return await self._store.write(action)
            except StoreFailed as error:
                log.warning("store failed", extra={"why": str(error)})
                await self._world.sleep(PAUSE)
