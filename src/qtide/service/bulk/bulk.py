"""Bulk: work on what is small is done at once, on what is large by processes, in turn."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import IO

from qtide.payloads.payload import PayloadRefused
from qtide.service.bulk.work import WORK, Done
from qtide.service.limits.turns import Turns
from qtide.system.child import Child
from qtide.world import World

SMALL = 16 * 1024
"""Bytes that are worked on at once: the worst of them take two milliseconds."""
PLACES = 2
LIMIT = 20.0
"""Seconds that the work may take."""
COMMAND = (sys.executable, "-m", "qtide.service.bulk.process")


class Bulk:
    """Processes that are started when they are needed; no caller occupies all of them."""

    def __init__(self, world: World, log: IO[bytes] | None = None) -> None:
        self._turns = Turns(world, PLACES, PLACES - 1)
        self._idle: list[Child] = []
        self._log = log

    async def do(self, work: str, data: bytes, who: str) -> Done:
        """The result of one of the kinds of work; a refusal is raised as such."""
        if len(data) <= SMALL:
            return WORK[work](data)
        async with self._turns.turn(who):
            return await self._by_process(work, data)

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().kill()

    async def _by_process(self, work: str, data: bytes) -> Done:
        child = await self._take()
        try:
            async with asyncio.timeout(LIMIT):
                child.send({"work": work}, data)
                header, body = await child.message()
        except TimeoutError:
            await child.kill()
            raise PayloadRefused(f"the request took more than {LIMIT:g} s to read") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            await child.kill()
            raise PayloadRefused("the request ended the process that read it") from None
        except BaseException:
            await child.kill()
            raise
        self._idle.append(child)
        if "refused" in header:
            raise PayloadRefused(header["refused"])
        return header["words"], body

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        child = await Child.start(COMMAND, self._log)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(LIMIT):
                await child.message()
        return child
