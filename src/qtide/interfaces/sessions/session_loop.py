"""The loop of a session: a thread beside the script; in virtual time, the waits of the script."""

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
        """Call a function within the loop after so many real seconds; never in virtual time."""

    def run_until(self, future: Future[Any]) -> None:
        """Let time pass until the future is done, if it does not pass by itself."""

    def end(self, *, cancel: bool) -> None:
        """Return when the main coroutine has ended."""


class ThreadedLoop:
    """Real time passes in a thread."""

    one_thread = False

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the thread."""
        self._thread = LoopThread(main).__enter__()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it in the thread, soon."""
        self._thread.call(function, *args)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Set a timer of the event loop."""
        self.call(lambda: asyncio.get_running_loop().call_later(seconds, function))

    def run_until(self, future: Future[Any]) -> None:
        """Return: time passes by itself."""

    def end(self, *, cancel: bool) -> None:
        """Wait for the thread."""
        if cancel:
            self._thread.cancel()
        self._thread.wait()


class SteppedLoop:
    """Virtual time passes while the script waits, in its own thread."""

    one_thread = True

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Add the coroutine to the world, which stands still."""
        self._main = self._world.start(main)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it here: the world stands still."""
        function(*args)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Return: the script waits sooner or later, and no time passes before."""

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
