"""A call of a session: its function, its place in the script, its future, and its fingerprint."""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from qtide.core import values
from qtide.interfaces.sessions.on_node import Called

T = TypeVar("T")


@dataclass(eq=False)
class SessionCall:
    """What the script asked for; `key` is its place in the script."""

    key: str
    asked: str
    """The kind of phase and the function's name; in a named session, the fingerprint as well."""
    future: SessionFuture[Any]
    function: Callable[..., Any] = print
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name."""
        return function_name(self.function)

    @property
    def called(self) -> Called:
        """The call, as a node takes it."""
        return self.function, self.args, self.kwargs


class FutureOwner(Protocol):
    """A session, as its futures see it."""

    def before_wait(self, future: Future[Any]) -> None:
        """The script is about to wait for a future."""

    def failure_seen(self, future: SessionFuture[Any]) -> None:
        """The script has seen how a call failed."""

    def future_cancelled(self) -> None:
        """The script has cancelled a future."""


_STARTING = threading.Lock()
"""Held for a moment, while a future becomes running or cancelled for good; one for all futures."""


class SessionFuture(Future[T]):
    """The result of a call of a session."""

    def __init__(self, session: FutureOwner) -> None:
        super().__init__()
        self._session = session
        self._waiters = FutureWaiters(self, session)
        self._running: bool | None = None
        self.ended_for: Any = None
        """Who was entering the list of waiters as the call ended, in virtual time."""

    def result(self, timeout: float | None = None) -> T:
        """Return the result, or raise what the call raised."""
        if not self.done():
            self._session.before_wait(self)
        try:
            return super().result(timeout)
        except (CancelledError, TimeoutError):
            raise
        except Exception:
            self._session.failure_seen(self)
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the call raised, if anything."""
        if not self.done():
            self._session.before_wait(self)
        error = super().exception(timeout)
        if error is not None:
            self._session.failure_seen(self)
        return error

    def cancel(self) -> bool:
        """Cancel the call, unless it was sent to a node or to the QPU."""
        if not super().cancel():
            return False
        self.start()  # tells those who wait
        self._session.future_cancelled()
        return True

    def start(self) -> bool:
        """Return whether the call may be made; if so, it can no longer be cancelled."""
        with _STARTING:
            if self._running is None:
                self._running = self.set_running_or_notify_cancel()
            return self._running

    def resolve(self, value: T | None, error: BaseException | None = None) -> None:
        """End the call, unless it has ended or was cancelled."""
        if self.done() or not self.start():
            return
        self.ended_for = getattr(FutureWaiters.entering, "waiter", None)
        if error is None:
            self.set_result(value)  # type: ignore[arg-type]  # it may be None
        else:
            self.set_exception(error)


class FutureWaiters(list[Any]):
    """The list in which `wait` and `as_completed` enter themselves before they wait.

    In virtual time, entering is what lets time pass; what ends meanwhile is reported at once.
    """

    entering = threading.local()
    """Who is entering at the moment, in each thread, while virtual time passes."""

    def __init__(self, future: SessionFuture[Any], session: FutureOwner) -> None:
        super().__init__()
        self._future = weakref.ref(future)  # so that it is freed as soon as nobody needs it
        self._session = session

    def append(self, waiter: Any) -> None:
        """Enter somebody who is about to wait."""
        super().append(waiter)
        future = self._future()
        assert future is not None
        if future.done():
            if future.ended_for is waiter:
                waiter.add_result(future)
            return
        FutureWaiters.entering.waiter = waiter
        try:
            self._session.before_wait(future)
        finally:
            FutureWaiters.entering.waiter = None


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a function in its script."""
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def fingerprint(value: Any) -> str:
    """Return a short word for a value, the same in every process."""
    return blake2b(_canonical(value, ()), digest_size=6).hexdigest()


def _canonical(value: Any, sets: tuple[int, ...]) -> bytes:
    """Pickle a value so that equal values give equal bytes; `sets` are those that it is part of."""
    try:
        return _pickled(PlainPickler, value, sets)
    except Exception:  # code, and other things that only cloudpickle takes
        return _pickled(CodePickler, value, sets)


def _pickled(kind: type[PlainPickler | CodePickler], value: Any, sets: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    pickler = kind(written, protocol=5)
    pickler.sets = sets
    pickler.dump(value)
    return written.getvalue()


class _Canonical:
    """Has pickle write what differs from process to process in an order of our own."""

    sets: tuple[int, ...] = ()

    def persistent_id(self, value: Any) -> Any:
        """Return what is written in place of a set or of a circuit; None for all other values.

        pickle asks this for every object, whatever it is part of.
        """
        if isinstance(value, set | frozenset):
            if id(value) in self.sets:  # it is part of itself
                return "set", self.sets.index(id(value))
            inside = (*self.sets, id(value))
            return "set", sorted(_canonical(each, inside) for each in value)
        if hasattr(type(value), "qregs") and hasattr(value, "data"):  # a circuit has a unique name
            return "circuit", [_gate(value, each) for each in value.data]
        return None


class PlainPickler(_Canonical, pickle.Pickler):
    """pickle's."""


class CodePickler(_Canonical, values.Pickler):
    """cloudpickle's."""


def _gate(circuit: Any, instruction: Any) -> tuple[Any, ...]:
    places = [circuit.find_bit(bit).index for bit in (*instruction.qubits, *instruction.clbits)]
    return instruction.operation.name, [str(each) for each in instruction.operation.params], places
