"""An event loop in a thread of its own, for callers that are synchronous or have a loop already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

PAUSE = 0.2
"""Seconds after which a waiting caller looks up: only then does Python deliver a Ctrl-C to it."""


class Aside(Generic[T]):
    """Runs a coroutine to its end; leaving the block cancels it, and waits until it has ended."""

    def __init__(self, main: Coroutine[Any, Any, T]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._outcome: tuple[T | None, BaseException | None] = (None, None)
        self._thread = threading.Thread(target=self._run, name="qtide", daemon=True)

    def __enter__(self) -> Aside[T]:
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
        """Whether it has not ended."""
        return not self._ended.is_set()

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the loop, soon; not at all if the loop has ended."""
        assert self._loop is not None
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def cancel(self) -> None:
        """Ask it to end."""
        assert self._task is not None
        self.call(self._task.cancel)

    def wait(self) -> None:
        """Wait until it has ended."""
        while not self._ended.wait(PAUSE):
            continue

    def result(self) -> T:
        """Wait for its result; raises what it raised."""
        self.wait()
        value, error = self._outcome
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # there is one, as there is no error

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
