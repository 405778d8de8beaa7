"""Endings: how a task ended is written first, then announced."""

from __future__ import annotations

import logging
from collections.abc import Callable

from qtide.payloads.encoded import Encoded
from qtide.service import records
from qtide.service.store import Action, Result, Store, StoreFailed, Unstorable
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
        self._stuck = 0
        self.on_ended: Callable[[Task], None] = lambda _: None
        self.on_written: Callable[[], None] = lambda: None

    @property
    def stuck(self) -> bool:
        """Whether the store refuses what has to be written: then nothing more should be started."""
        return self._stuck > 0

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
        try:
            recorded = await self.surely(records.finish(task, ending, answer))
        except Unstorable as why:
            answer = None
            ending = Ending(State.FAILED, ending.at, used, f"its answer cannot be stored: {why}")
            recorded = await self.surely(records.finish(task, ending, None))
        if recorded:
            task.end(ending, answer)
            self.on_ended(task)

    async def surely(self, action: Action[Result]) -> Result:
        """Write, and while the disk is full or locked, retry: nothing may be lost."""
        try:
            return await self._store.write(action)
        except StoreFailed as error:
            self._stuck += 1
            try:
                return await self._retry(action, error)
            finally:
                self._stuck -= 1
                self.on_written()

    async def look(self, action: Action[Result]) -> Result:
        """Look up what the device waits for."""
        return await self._store.look(action, urgent=True)

    def note(self, action: Action[object]) -> None:
        """Write soon, if the store can; nobody waits for it."""
        self._store.post(action)

    async def _retry(self, action: Action[Result], error: StoreFailed) -> Result:
        while True:
            log.warning("store failed", extra={"why": str(error)})
            await self._world.sleep(PAUSE)
            try:
                return await self._store.write(action)
            except StoreFailed as again:
                error = again
