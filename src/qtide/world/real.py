"""Real time, by asyncio. A scale makes the clock run faster: modelled minutes pass in seconds."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qtide.world.aside import Aside
from qtide.world.world import Alarm, Future, World

T = TypeVar("T")


class RealWorld(World):
    """One second on this clock takes `scale` seconds.

    The clock starts from the time of day, so that the ledgers of several drivers, and of a run
    that was resumed, line up.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._origin = time.time() - time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()

    def now(self) -> float:
        """The time of day, on the scaled clock."""
        return (self._origin + time.monotonic()) / self.scale

    def counted(self, seconds: float) -> float:
        """On the scaled clock, more or fewer."""
        return seconds / self.scale

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let `seconds` of the scaled clock pass."""
        return asyncio.sleep(max(0.0, seconds) * self.scale)

    def future(self) -> Future[Any]:
        """A new asyncio future."""
        return asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """A new asyncio task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)  # asyncio itself holds its tasks only weakly
        task.add_done_callback(self._tasks.discard)
        return task

    def alarm(self, seconds: float, action: Callable[[], object]) -> Alarm:
        """A timer of the event loop: no task is started for it."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds) * self.scale, action)

    def offload(self, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        """Call it in a thread."""
        return asyncio.to_thread(function, *args)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`; SIGINT and SIGTERM cancel it, so that it cleans up.

        Where an event loop is running already, as in a notebook, it runs in a thread.
        """
        if _in_a_loop():
            with Aside(main) as aside:
                return aside.result()
        if threading.current_thread() is not threading.main_thread():  # which has the signals
            return asyncio.run(main)
        return asyncio.run(self._until_signalled(main))

    async def _until_signalled(self, main: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(main)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await task
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
