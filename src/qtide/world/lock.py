"""A lock among the tasks of one world: first come, first served."""

from __future__ import annotations

from collections import deque

from qtide.world.world import Future, World


class Lock:
    """`async with lock:` lets one task in at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = False
        self._waiters: deque[Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._held:
            self._held = True
            return
        waiter: Future[None] = self._world.future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.cancelled():
                self._pass_on()  # it got the lock at the moment it was cancelled
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._held = False
