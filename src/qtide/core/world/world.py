"""The interface of time: code that awaits only what a world offers runs in every world."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Future(Protocol[T]):
    """A future result; started tasks are futures too. asyncio's futures match this protocol."""

    def done(self) -> bool:
        """Whether it has a result or an exception, or was cancelled."""

    def cancelled(self) -> bool:
        """Whether it was cancelled."""

    def result(self) -> T:
        """The result; raises the exception if there is one."""

    def exception(self) -> BaseException | None:
        """The exception, or None."""

    def set_result(self, result: T, /) -> None:
        """Set the result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Set an exception instead."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call `callback(self)` once done."""

    def cancel(self) -> bool:
        """Ask it to stop; return False if it is already done."""

    def __await__(self) -> Generator[Any, None, T]: ...


class Alarm(Protocol):
    """A scheduled action that can be cancelled."""

    def cancel(self) -> object:
        """Cancel the action."""


class World(ABC):
    """A clock and the tasks that run by it."""

    is_virtual = False
    """Whether time passes only as the tasks let it, with nobody outside waiting for them."""

    @abstractmethod
    def now(self) -> float:
        """Current time on this world's clock, in seconds."""

    def counted(self, seconds: float) -> float:
        """Convert real seconds to seconds of this clock."""
        return seconds

    @abstractmethod
    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Wait for `seconds`."""

    @abstractmethod
    def future(self) -> Future[Any]:
        """Create a future without a result."""

    @abstractmethod
    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` concurrently with the caller."""

    @abstractmethod
    def alarm(self, seconds: float, action: Callable[[], object]) -> Alarm:
        """Call `action` after `seconds` unless cancelled, e.g. to limit a wait."""

    @abstractmethod
    def offload(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        """Call a long-running function without blocking other tasks."""

    @abstractmethod
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, from outside any world."""

    async def settled(self, futures: Iterable[Future[Any]]) -> None:
        """Wait until all are done, whatever their outcome."""
        await self._gate(list(futures), first=False)

    async def first_of(self, futures: Sequence[Future[T]]) -> Future[T]:
        """Wait until one is done and return it; the others continue."""
        await self._gate(futures, first=True)
        return next(each for each in futures if each.done())

    async def all_of(self, works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Run all concurrently to their ends; then raise the first error in order, if any.

        Because it waits for all and fails by position, the outcome does not depend on timing.
        """
        works = list(works)
        if len(works) == 1:  # needs no task of its own
            return [await works[0]]
        return await self.results([self.start(work) for work in works])

    async def results(self, tasks: Sequence[Future[T]]) -> list[T]:
        """Wait for started tasks and return their results, like `all_of`."""
        try:
            await self.settled(tasks)
        except CancelledError:
            await self.cancel(tasks)
            raise
        for task in tasks:
            if not task.cancelled():
                task.exception()  # retrieve it, so that asyncio does not warn
        return [task.result() for task in tasks]

    async def timeout(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`; cancel it and raise TimeoutError after `seconds`."""
        task: Future[T] = self.start(work)
        alarm: Future[Any] = self.start(self.sleep(seconds))
        either: list[Future[Any]] = [task, alarm]
        try:
            await self.first_of(either)
            if task.done():
                return task.result()
            raise TimeoutError
        finally:
            await self.cancel(either)

    async def cancel(self, tasks: Iterable[Future[Any]]) -> None:
        """Cancel the running tasks and wait until they have cleaned up."""
        running = [task for task in tasks if task.cancel()]
        await self.settled(running)

    async def _gate(self, futures: Sequence[Future[Any]], *, first: bool) -> None:
        pending = [each for each in futures if not each.done()]
        if not pending or (first and len(pending) < len(futures)):
            return
        gate = self.future()
        missing = 1 if first else len(pending)

        def one_more(_: object) -> None:
            nonlocal missing
            missing -= 1
            if missing == 0 and not gate.done():
                gate.set_result(None)

        for each in pending:
            each.add_done_callback(one_more)
        await gate


class Signal:
    """A flag to wait for; it stays set until cleared."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiters: set[Future[None]] = set()
        self.is_set = False

    def set(self) -> None:
        """Set the signal and let all waiters continue."""
        self.is_set = True
        for waiter in self._waiters:
            release(waiter)

    def clear(self) -> None:
        """Clear the signal: later callers of `wait` wait again."""
        self.is_set = False

    async def wait(self, limit: float | None = None) -> bool:
        """Wait until the signal is set, at most `limit` seconds; return whether it is set."""
        if self.is_set:
            return True
        waiter: Future[None] = self._world.future()
        alarm = None
        if limit is not None:
            alarm = self._world.alarm(limit, lambda: release(waiter))
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()
        return self.is_set


def release(waiter: Future[None]) -> None:
    """Resolve a future unless it is already done."""
    if not waiter.done():
        waiter.set_result(None)


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
                self._pass_on()  # it got the lock just as it was cancelled
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


log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Maximum seconds before a failing background task is tried again."""


class BackgroundTasks:
    """The running background tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: set[Future[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Start a background task."""
        task = self._world.start(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def repeat(
        self,
        name: str,
        work: Callable[[], Awaitable[None]],
        pause: float,
        longest: float = LONGEST_PAUSE,
    ) -> None:
        """Repeat `work` forever; log failures and try again.

        The pause doubles after each consecutive failure, from one second up to `longest`.
        """
        self.start(self._repeated(name, work, pause, longest))

    async def _repeated(
        self, name: str, work: Callable[[], Awaitable[None]], pause: float, longest: float
    ) -> None:
        failures = 0
        while True:
            try:
                await work()
                failures = 0
            except Exception as error:
                failures += 1
                log.error(  # noqa: TRY400 - the reason is enough for repeated failures
                    "background task failed and is tried again",
                    extra={"task": name, "why": f"{type(error).__name__}: {error}"},
                )
            delay = min(2.0 ** (failures - 1), longest) if failures else pause
            await self._world.sleep(delay)

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they have cleaned up."""
        await self._world.cancel(list(self._running))

    def _done(self, task: Future[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", exc_info=error)
