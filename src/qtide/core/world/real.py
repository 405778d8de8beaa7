"""Real time, based on asyncio. A scale can speed up the clock: modelled minutes take seconds."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

from qtide.core.world.world import Alarm, Future, World

T = TypeVar("T")


class RealWorld(World):
    """A world in which one second takes `scale` real seconds.

    The clock starts from the time of day, so that the ledgers of several drivers and of resumed
    runs line up.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._origin = time.time() - time.monotonic()
        self._tasks: set[asyncio.Task[Any]] = set()

    def now(self) -> float:
        """Time of day on the scaled clock."""
        return (self._origin + time.monotonic()) / self.scale

    def counted(self, seconds: float) -> float:
        """Convert real seconds to seconds of the scaled clock."""
        return seconds / self.scale

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait for `seconds` of the scaled clock."""
        return asyncio.sleep(max(0.0, seconds) * self.scale)

    def future(self) -> Future[Any]:
        """Create an asyncio future."""
        return asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start an asyncio task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)  # asyncio keeps only weak references to tasks
        task.add_done_callback(self._tasks.discard)
        return task

    def alarm(self, seconds: float, action: Callable[[], object]) -> Alarm:
        """Set a timer of the event loop, without starting a task."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds) * self.scale, action)

    def offload(self, function: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        """Call the function in a thread."""
        return asyncio.to_thread(function, *args)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`; SIGINT and SIGTERM cancel it, so that it can clean up.

        If an event loop is already running, as in a notebook, `main` runs in a thread.
        """
        if _in_a_loop():
            with LoopThread(main) as aside:
                return aside.result()
        if threading.current_thread() is not threading.main_thread():  # only that one gets signals
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


PAUSE = 0.2
"""Seconds between wake-ups of a waiting caller, so that Python can deliver Ctrl-C to it."""


class LoopThread(Generic[T]):
    """Runs a coroutine in a thread; leaving the block cancels it and waits until it has ended."""

    def __init__(self, main: Coroutine[Any, Any, T]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._outcome: tuple[T | None, BaseException | None] = (None, None)
        self._thread = threading.Thread(target=self._run, name="qtide", daemon=True)

    def __enter__(self) -> LoopThread[T]:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()
        self.wait()

    @property
    def running(self) -> bool:
        """Whether the coroutine is still running."""
        return not self._ended.is_set()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a function call in the loop; do nothing if the loop has ended."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def cancel(self) -> None:
        """Ask the coroutine to end."""
        assert self._task is not None
        self.call(self._task.cancel)

    def wait(self) -> None:
        """Wait until the coroutine has ended."""
        while not self._ended.wait(PAUSE):
            continue

    def result(self) -> T:
        """Wait for the coroutine's result or raise its exception."""
        self.wait()
        value, error = self._outcome
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # set if there is no error

    def _run(self) -> None:
        try:
            self._outcome = (asyncio.run(self._start()), None)
        except BaseException as error:
            self._outcome = (None, error)
        finally:
            self._begun.set()
            self._ended.set()

    async def _start(self) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._main)
        self._begun.set()
        return await self._task
