"""Virtual time: an event kernel that runs coroutines as fast as possible.

All events of one moment are in one list; a heap holds only the moments. The kernel is fast because
it compares bare floats and uses the heap once per moment. It never searches for events: a task
that is woken early leaves a void event behind, which is skipped.
"""

from __future__ import annotations

import random
from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Coroutine, Generator, Iterable
from heapq import heappop, heappush
from math import inf
from types import coroutine
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from qtide.core.world.world import Future, World

T = TypeVar("T")


class Stuck(RuntimeError):  # noqa: N818 - a state of the world, reported as such
    """No events are left, but the main task has not ended."""


class VirtualFuture(Generic[T]):
    """A future in virtual time."""

    __slots__ = ("_callbacks", "_error", "_ready", "_result", "waiters")

    def __init__(self, ready: list[Resumption]) -> None:
        self.waiters: list[Resumption] | None = []
        self._ready = ready
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._result: T

    def done(self) -> bool:
        """Whether it has a result or an exception, or was cancelled."""
        return self.waiters is None

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return isinstance(self._error, CancelledError)

    def result(self) -> T:
        """The result; raises the exception if there is one."""
        if self.waiters is not None:
            raise InvalidStateError("the result is not set yet")
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        """The exception, or None."""
        return self._error

    def set_result(self, result: T, /) -> None:
        """Set the result."""
        waiters = self.waiters
        if waiters is None:
            raise InvalidStateError("the result is already set")
        self.waiters = None
        self._result = result
        self._ready.extend(waiters)
        if self._callbacks is not None:
            self._call_back()

    def set_exception(self, exception: BaseException, /) -> None:
        """Set an exception instead."""
        self._error = exception
        self.set_result(cast("T", None))

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Call `callback(self)` once done."""
        if self.waiters is None:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def cancel(self) -> bool:
        """End it with CancelledError."""
        if self.waiters is None:
            return False
        self.set_exception(CancelledError())
        return True

    def __await__(self) -> Generator[Any, None, T]:
        if self.waiters is not None:
            yield self
        if self._error is not None:
            raise self._error
        return self._result

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(self)


class Resumption:
    """A task's event in the schedule; `run` runs the task up to its next wait."""

    __slots__ = ("run", "task")

    def __init__(self, run: Callable[[Any], Any], task: VirtualTask[Any]) -> None:
        self.run = run
        self.task = task


class VirtualTask(VirtualFuture[T]):
    """A coroutine running in virtual time."""

    __slots__ = ("_cancelling", "_resumption", "_work")

    def __init__(self, ready: list[Resumption], work: Coroutine[Any, Any, T]) -> None:
        super().__init__(ready)
        self._cancelling = False
        self._work = work
        self._resumption = Resumption(work.send, self)
        ready.append(self._resumption)

    def cancel(self) -> bool:
        """Throw CancelledError into the coroutine at the current moment.

        A task that cancels itself gets it at its next wait; if there is none, it ends as cancelled.
        """
        if self.waiters is None:
            return False
        self._cancelling = True
        self._resumption.run = _void
        self._resumption = Resumption(self._throw, self)
        self._ready.append(self._resumption)
        return True

    def end(self, result: T) -> None:
        """Set the result after the coroutine has returned."""
        del self._resumption  # breaks the reference cycle, which spares the collector
        if self._cancelling:
            self.set_exception(CancelledError())
        else:
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set the exception after the coroutine has raised one."""
        del self._resumption
        self.set_exception(error)

    def _throw(self, _: None) -> Any:
        if self.waiters is None:  # it cancelled itself, then ended
            return None
        self._cancelling = False
        self._resumption.run = self._work.send
        return self._work.throw(CancelledError())


class VirtualAlarm:
    """Calls a function at its time; an exception from it ends the world's run."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    @property
    def task(self) -> NoReturn:
        """Re-raise the current error: an alarm has no task that could fail."""
        raise  # noqa: PLE0704 - only used while an error is handled

    def run(self, _: None) -> None:
        """Call the function."""
        self._action()

    def cancel(self) -> None:
        """Replace the function by a void event."""
        self._action = _nothing


class ExternalEvents(Protocol):
    """A source of events outside the world's tasks, with its own schedule."""

    def until(self, moment: float) -> float | None:
        """Time of its next event for the tasks, if at or before `moment`; otherwise None."""

    def deliver(self) -> None:
        """Deliver that event; the clock has reached its time."""


class VirtualWorld(World):
    """A deterministic world: the same seed gives the same order of events.

    With a seed, events of the same moment happen in a random order drawn from it, so that tests can
    try many interleavings; without a seed, in the order of their creation.
    """

    is_virtual = True

    def __init__(self, seed: int | None = None) -> None:
        self.events = 0
        self._now = 0.0
        self._moments: list[float] = []
        self._later: dict[float, list[Resumption | VirtualAlarm]] = {}
        self._ready: list[Resumption] = []
        self._shuffle = None if seed is None else random.Random(seed).shuffle
        self._beside: ExternalEvents | None = None

    def now(self) -> float:
        """Seconds since this world began."""
        return self._now

    @coroutine
    def sleep(self, seconds: float) -> Generator[float, None, None]:
        """Wait for virtual `seconds` (a bare generator, as this is a model's hottest call)."""
        yield seconds

    def future(self) -> VirtualFuture[Any]:
        """Create a virtual future."""
        return VirtualFuture(self._ready)

    def start(self, work: Coroutine[Any, Any, T]) -> VirtualTask[T]:
        """Start `work` at the current moment."""
        return VirtualTask(self._ready, work)

    def alarm(self, seconds: float, action: Callable[[], object]) -> VirtualAlarm:
        """Schedule a separate event, without starting a task."""
        alarm, moment = VirtualAlarm(action), self._now + (seconds if seconds > 0 else 0.0)
        if moment in self._later:
            self._later[moment].append(alarm)
        else:
            self._later[moment] = [alarm]
            heappush(self._moments, moment)
        return alarm

    @coroutine
    def settled(self, futures: Iterable[Future[Any]]) -> Generator[Any, None, None]:
        """Wait for the futures one by one: waking a task costs less than a counting gate."""
        for each in futures:
            if not each.done():
                yield each

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call the function at once: computing takes no virtual time."""
        return function(*args)

    def beside(self, other: ExternalEvents) -> None:
        """Before each move of the clock, ask `other` for earlier events."""
        self._beside = other

    def run(self, main: Coroutine[Any, Any, T], until: float = inf) -> T:
        """Run `main` and all it starts until `main` ends; raise TimeoutError at `until`."""
        task = self.start(main)
        self._run(task, until)
        if not task.done():
            if self._moments:
                raise TimeoutError(f"the virtual clock reached {until:g} s")
            raise Stuck(f"nothing is left to happen at {self._now:g} s")
        return task.result()

    def _run(self, main: VirtualTask[Any], until: float) -> None:  # noqa: C901, PLR0912 - hot
        """Go from moment to moment; run the due events, then the tasks they made ready."""
        moments, later, ready, now = self._moments, self._later, self._ready, self._now
        shuffle, events = self._shuffle, 0
        due: list[Resumption | VirtualAlarm]
        while main.waiters is not None:
            if ready:
                due = [*ready]
                ready.clear()
            elif self._beside and self._delivered(self._beside, until):  # a task may set it
                now = self._now
                continue
            elif moments and moments[0] <= until:
                self._now = now = heappop(moments)
                due = later.pop(now)
            else:
                break
            if shuffle:
                shuffle(due)
            events += len(due)
            for each in due:
                try:
                    awaited: Any = each.run(None)
                except StopIteration as stop:
                    each.task.end(stop.value)
                except (KeyboardInterrupt, SystemExit):
                    raise  # the user's will, no failure of the task that ran at that moment
                except BaseException as error:
                    each.task.fail(error)
                else:
                    kind = type(awaited)
                    if kind is float or kind is int:
                        moment = now + awaited if awaited > 0 else now
                        if moment in later:
                            later[moment].append(each)
                        else:
                            later[moment] = [each]
                            heappush(moments, moment)
                    elif awaited is not None:
                        awaited.waiters.append(each)
        self.events += events

    def _delivered(self, beside: ExternalEvents, until: float) -> bool:
        """Deliver external events due before the next event, and move the clock there."""
        moments = self._moments
        moment = beside.until(moments[0] if moments and moments[0] < until else until)
        if moment is None:
            return False
        self._now = moment
        beside.deliver()
        return True


def _nothing() -> None:
    """Stand-in for the action of a cancelled alarm."""


def _void(_: None) -> None:
    """Stand-in for the event of a task that was cancelled in the meantime."""
