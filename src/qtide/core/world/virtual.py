"""Virtual time: an event kernel that runs coroutines as fast as they come.

The events of one moment are in one list, and a heap holds only the moments: comparing bare floats,
and using the heap once per moment, makes the kernel fast. Nothing is ever searched for: a task that
is woken early leaves a void event behind, which is skipped.
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
    """Nothing is left to happen, and the main task has not ended."""


class VirtualFuture(Generic[T]):
    """A result to come in virtual time."""

    __slots__ = ("_callbacks", "_error", "_ready", "_result", "waiters")

    def __init__(self, ready: list[Resumption]) -> None:
        self.waiters: list[Resumption] | None = []
        self._ready = ready
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._result: T

    def done(self) -> bool:
        """Whether there is a result, an exception, or it was cancelled."""
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
        """Give the result."""
        waiters = self.waiters
        if waiters is None:
            raise InvalidStateError("the result is already set")
        self.waiters = None
        self._result = result
        self._ready.extend(waiters)
        if self._callbacks is not None:
            self._call_back()

    def set_exception(self, exception: BaseException, /) -> None:
        """Give an exception instead."""
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
    """A coroutine on its way through virtual time."""

    __slots__ = ("_cancelling", "_resumption", "_work")

    def __init__(self, ready: list[Resumption], work: Coroutine[Any, Any, T]) -> None:
        super().__init__(ready)
        self._cancelling = False
        self._work = work
        self._resumption = Resumption(work.send, self)
        ready.append(self._resumption)

    def cancel(self) -> bool:
        """Throw CancelledError into the coroutine, at the present moment.

        A task that cancels itself gets it at its next wait; without one, it ends as cancelled.
        """
        if self.waiters is None:
            return False
        self._cancelling = True
        self._resumption.run = _void
        self._resumption = Resumption(self._throw, self)
        self._ready.append(self._resumption)
        return True

    def end(self, result: T) -> None:
        """The coroutine has returned."""
        del self._resumption  # which knows the task: without it, no collector has to find both
        if self._cancelling:
            self.set_exception(CancelledError())
        else:
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """The coroutine has raised an error."""
        del self._resumption
        self.set_exception(error)

    def _throw(self, _: None) -> Any:
        if self.waiters is None:  # it had cancelled itself, then ended
            return None
        self._cancelling = False
        self._resumption.run = self._work.send
        return self._work.throw(CancelledError())


class VirtualAlarm:
    """Calls a function when its time has come; what that raises ends the run of the world."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    @property
    def task(self) -> NoReturn:
        """It has none that could fail: the error at hand goes on."""
        raise  # noqa: PLE0704 - only asked for while an error is handled

    def run(self, _: None) -> None:
        """Call the function."""
        self._action()

    def cancel(self) -> None:
        """Leave a void event behind."""
        self._action = _nothing


class ExternalEvents(Protocol):
    """Something that lives beside a world's tasks, and keeps its own account of what is to come."""

    def until(self, moment: float) -> float | None:
        """When it has something for the tasks, if that is at `moment` or before."""

    def deliver(self) -> None:
        """Hand that over, now that the clock stands there."""


class VirtualWorld(World):
    """Deterministic: the same seed gives the same order of events.

    With a seed, events of the same moment happen in a random order drawn from it, so that tests can
    try many interleavings; without, in the order in which they were created.
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
        """Seconds since the beginning of this world."""
        return self._now

    @coroutine
    def sleep(self, seconds: float) -> Generator[float, None, None]:
        """Let virtual `seconds` pass (a bare generator: this is the hottest call of a model)."""
        yield seconds

    def future(self) -> VirtualFuture[Any]:
        """A new virtual future."""
        return VirtualFuture(self._ready)

    def start(self, work: Coroutine[Any, Any, T]) -> VirtualTask[T]:
        """Run `work` from the present moment on."""
        return VirtualTask(self._ready, work)

    def alarm(self, seconds: float, action: Callable[[], object]) -> VirtualAlarm:
        """An event of its own: no task is started for it."""
        alarm, moment = VirtualAlarm(action), self._now + (seconds if seconds > 0 else 0.0)
        if moment in self._later:
            self._later[moment].append(alarm)
        else:
            self._later[moment] = [alarm]
            heappush(self._moments, moment)
        return alarm

    @coroutine
    def settled(self, futures: Iterable[Future[Any]]) -> Generator[Any, None, None]:
        """Wait for one after the other: waking a task costs less than a gate that counts."""
        for each in futures:
            if not each.done():
                yield each

    async def offload(self, function: Callable[..., T], *args: Any) -> T:
        """Call it at once: computing takes no virtual time."""
        return function(*args)

    def beside(self, other: ExternalEvents) -> None:
        """Before the clock moves, ask `other` whether it has something for the tasks before."""
        self._beside = other

    def run(self, main: Coroutine[Any, Any, T], until: float = inf) -> T:
        """Run `main`, and all it started, until `main` ends; TimeoutError once `until` has come."""
        task = self.start(main)
        self._run(task, until)
        if not task.done():
            if self._moments:
                raise TimeoutError(f"the virtual clock reached {until:g} s")
            raise Stuck(f"nothing is left to happen at {self._now:g} s")
        return task.result()

    def _run(self, main: VirtualTask[Any], until: float) -> None:  # noqa: C901, PLR0912 - hot
        """Go from moment to moment; run what is due in order, then the tasks this made ready."""
        moments, later, ready, now = self._moments, self._later, self._ready, self._now
        shuffle, events = self._shuffle, 0
        due: list[Resumption | VirtualAlarm]
        while main.waiters is not None:
            if ready:
                due = [*ready]
                ready.clear()
            elif self._beside and self._delivered(self._beside, until):  # maybe set by a task
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
        """Go to the moment, before the next event, at which there is something for the tasks."""
        moments = self._moments
        moment = beside.until(moments[0] if moments and moments[0] < until else until)
        if moment is None:
            return False
        self._now = moment
        beside.deliver()
        return True


def _nothing() -> None:
    """Replaces what a cancelled alarm would have called."""


def _void(_: None) -> None:
    """Replaces the event of a task that was cancelled in the meantime."""
