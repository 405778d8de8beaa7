"""The loop of a session: runs in its own thread or, in virtual time, while the script waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from qtide.core.world.real import LoopThread
from qtide.core.world.virtual import Stuck, VirtualWorld
from qtide.core.world.world import World


class SessionLoop(Protocol):
    """Runs the main coroutine of a session."""

    one_thread: bool
    """Whether the thread that opened the session is the only one that can use it."""

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the main coroutine."""

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function within the loop."""

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call a function within the loop after `seconds` real seconds; never in virtual time."""

    def run_until(self, future: Future[Any]) -> None:
        """Let time pass until the future is done, unless it passes by itself."""

    def end(self, *, cancel: bool) -> None:
        """Wait until the main coroutine has ended."""


class ThreadedLoop:
    """Runs the session in real time, in a thread."""

    one_thread = False

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the thread."""
        self._thread = LoopThread(main).__enter__()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule the call in the thread."""
        self._thread.call(function, *args)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Schedule the call on the thread's event loop."""
        self.call(lambda: asyncio.get_running_loop().call_later(seconds, function))

    def run_until(self, future: Future[Any]) -> None:
        """Do nothing: time passes by itself."""

    def end(self, *, cancel: bool) -> None:
        """Wait for the thread."""
        if cancel:
            self._thread.cancel()
        self._thread.wait()


class SteppedLoop:
    """Runs the session in virtual time, in the script's thread, while the script waits."""

    one_thread = True

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Add the coroutine to the world, whose clock is stopped."""
        self._main = self._world.start(main)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it directly: the world's clock is stopped."""
        function(*args)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Do nothing: no time passes until the script waits, and then the calls start anyway."""

    def run_until(self, future: Future[Any]) -> None:
        """Let virtual time pass until the future is done."""
        gate = self._world.future()
        future.add_done_callback(lambda _: gate.set_result(None))
        self._world.run(self._world.settled([gate]))

    def end(self, *, cancel: bool) -> None:
        """Let virtual time pass until the main coroutine has ended."""
        if cancel:
            self._main.cancel()
        with suppress(Stuck):
            self._world.run(self._world.settled([self._main]))


def loop_for(world: World) -> SessionLoop:
    """Return the loop for a kind of world."""
    if not world.is_virtual:
        return ThreadedLoop()
    assert isinstance(world, VirtualWorld)
    return SteppedLoop(world)
