"""What drives the world of a session: a thread beside the script; in virtual time, its waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from qtide.world.aside import Aside
from qtide.world.real import RealWorld
from qtide.world.virtual import Stuck, VirtualWorld
from qtide.world.world import World


class Engine(Protocol):
    """Runs the main coroutine of a session."""

    one_thread: bool
    """Whether the thread that opened the session is the only one that can use it."""

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Begin."""

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function within the world."""

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something within the world, after so many real seconds; never in virtual time."""

    def attend(self, future: Future[Any]) -> None:
        """The script is about to wait for a future."""

    def end(self, *, cancel: bool) -> None:
        """Return when the main coroutine has ended."""


class Threaded:
    """Real time passes in a thread."""

    one_thread = False

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Start the thread."""
        self._aside = Aside(main).__enter__()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call it there, soon."""
        self._aside.call(function, *args)

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """A timer of its event loop."""
        self.call(lambda: asyncio.get_running_loop().call_later(seconds, action))

    def attend(self, future: Future[Any]) -> None:
        """Time passes by itself."""

    def end(self, *, cancel: bool) -> None:
        """Wait for the thread."""
        if cancel:
            self._aside.cancel()
        self._aside.wait()


class Stepped:
    """Virtual time passes while the script waits, in its own thread."""

    one_thread = True

    def __init__(self, world: VirtualWorld) -> None:
        self._world = world

    def start(self, main: Coroutine[Any, Any, None]) -> None:
        """Nothing happens yet."""
        self._main = self._world.start(main)

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """The world stands still: call it here."""
        function(*args)

    def soon(self, seconds: float, action: Callable[[], object]) -> None:
        """The script waits sooner or later, and no time passes before."""

    def attend(self, future: Future[Any]) -> None:
        """Let time pass until it is done."""
        gate = self._world.future()
        future.add_done_callback(lambda _: gate.set_result(None))
        self._world.run(self._world.settled([gate]))

    def end(self, *, cancel: bool) -> None:
        """Let time pass until the main coroutine has ended."""
        if cancel:
            self._main.cancel()
        with suppress(Stuck):
            self._world.run(self._world.settled([self._main]))


def engine_for(world: World) -> Engine:
    """What drives that kind of world."""
    if isinstance(world, RealWorld):
        return Threaded()
    assert isinstance(world, VirtualWorld)
    return Stepped(world)
