"""Futures of a session: `concurrent.futures` knows them, and the session knows who waits."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Attentive(Protocol):
    """A session, as its futures see it."""

    def attend(self, future: Future[Any], timeout: float | None = None) -> None:
        """The script is about to wait for a future."""

    def seen(self, future: Pending[Any]) -> None:
        """The script has seen how a call failed."""


class Waiters(list[Any]):
    """The list in which `wait` and `as_completed` enter themselves before they wait.

    In virtual time, entering is what lets time pass; what ends meanwhile is told at once.
    """

    def __init__(self, future: Pending[Any], session: Attentive) -> None:
        super().__init__()
        self._future = future
        self._session = session

    def append(self, waiter: Any) -> None:
        """Somebody is about to wait."""
        super().append(waiter)
        if self._future.done():
            if self._future.ended_for is waiter:
                waiter.add_result(self._future)
            return
        Waiters.entering.waiter = waiter
        try:
            self._session.attend(self._future)
        finally:
            Waiters.entering.waiter = None

    entering = threading.local()
    """Who is entering at the moment, in each thread, while virtual time passes."""


class Pending(Future[T]):
    """The result of a call of a session."""

    def __init__(self, session: Attentive) -> None:
        super().__init__()
        self._session = session
        self._waiters = Waiters(self, session)
        self.ended_for: Any = None

    def result(self, timeout: float | None = None) -> T:
        """The result; raises what the call raised."""
        if not self.done():
            self._session.attend(self, timeout)
        try:
            return super().result(timeout)
        except (CancelledError, TimeoutError):
            raise
        except Exception:
            self._session.seen(self)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised, if anything."""
        if not self.done():
            self._session.attend(self, timeout)
        error = super().exception(timeout)
        if error is not None:
            self._session.seen(self)
        return error

    def resolve(self, value: T | None, error: BaseException | None = None) -> None:
        """It is over."""
        if self.done():
            return
        self.ended_for = getattr(Waiters.entering, "waiter", None)
        if error is None:
            self.set_result(value)  # type: ignore[arg-type]  # it may be None
        else:
            self.set_exception(error)
