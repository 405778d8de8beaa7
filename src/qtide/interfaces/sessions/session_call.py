"""A call of a session: its function, position in the script, future and fingerprint."""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from qtide.core import values
from qtide.core.errors import QtideError
from qtide.core.resources import Needs
from qtide.programs.calls import Called

if TYPE_CHECKING:
    from qtide.interfaces.sessions.session import Session

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class SessionCall:
    """A call the script made; `key` is its position in the script."""

    key: str
    asked: str
    """The kind of phase and the function's name; in a named session, also the fingerprint."""
    future: SessionFuture[Any]
    function: Callable[..., Any] = print
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs | None = None
    """What it needs of a node; None for the session's default."""

    @property
    def name(self) -> str:
        """The function's name."""
        return function_name(self.function)

    @property
    def called(self) -> Called:
        """The call in the form that a node takes."""
        return self.function, self.args, self.kwargs


class FutureOwner(Protocol):
    """The interface of a session that its futures use."""

    def before_wait(self, future: Future[Any]) -> None:
        """Called when the script is about to wait for a future."""

    def failure_seen(self, future: SessionFuture[Any]) -> None:
        """Called when the script has seen how a call failed."""

    def future_cancelled(self) -> None:
        """Called when the script has cancelled a future."""


_STARTING = threading.Lock()
"""Guards the transition of a future to running or cancelled; shared by all futures."""


class SessionFuture(Future[T]):
    """The result of a call of a session."""

    def __init__(self, session: FutureOwner) -> None:
        super().__init__()
        self._session = session
        self._waiters = FutureWaiters(self, session)
        self._running: bool | None = None
        self.ended_for: Any = None
        """The waiter that was being added when the call ended, in virtual time."""

    def result(self, timeout: float | None = None) -> T:
        """Return the result or raise the call's exception."""
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
        """Return the call's exception, if any."""
        if not self.done():
            self._session.before_wait(self)
        error = super().exception(timeout)
        if error is not None:
            self._session.failure_seen(self)
        return error

    def cancel(self) -> bool:
        """Cancel the call unless it was already sent to a node or the QPU."""
        if not super().cancel():
            return False
        self.start()  # notifies the waiters
        self._session.future_cancelled()
        return True

    def start(self) -> bool:
        """Return whether the call may be made; if so, it can no longer be cancelled."""
        with _STARTING:
            if self._running is None:
                self._running = self.set_running_or_notify_cancel()
            return self._running

    def resolve(self, value: T | None, error: BaseException | None = None) -> None:
        """End the call unless it has ended or was cancelled."""
        if self.done() or not self.start():
            return
        self.ended_for = getattr(FutureWaiters.entering, "waiter", None)
        if error is None:
            self.set_result(value)  # type: ignore[arg-type]  # it may be None
        else:
            self.set_exception(error)


class FutureWaiters(list[Any]):
    """The list to which `wait` and `as_completed` add a waiter before they wait.

    In virtual time, adding a waiter lets time pass; calls that end meanwhile are reported at once.
    """

    entering = threading.local()
    """The waiter being added in each thread while virtual time passes."""

    def __init__(self, future: SessionFuture[Any], session: FutureOwner) -> None:
        super().__init__()
        self._future = weakref.ref(future)  # weak, so that an unused future is freed at once
        self._session = session

    def append(self, waiter: Any) -> None:
        """Add a waiter."""
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
    """Return a short digest of a value that is the same in every process."""
    return blake2b(_canonical(value, ()), digest_size=6).hexdigest()


def _canonical(value: Any, sets: tuple[int, ...]) -> bytes:
    """Pickle a value so that equal values give equal bytes; `sets` are the sets that contain it."""
    try:
        return _pickled(PlainPickler, value, sets)
    except Exception:  # code and other values that only cloudpickle supports
        return _pickled(CodePickler, value, sets)


def _pickled(kind: type[PlainPickler | CodePickler], value: Any, sets: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    pickler = kind(written, protocol=5)
    pickler.sets = sets
    pickler.dump(value)
    return written.getvalue()


class _Canonical:
    """Makes pickle write values that differ between processes in a canonical form."""

    sets: tuple[int, ...] = ()

    def persistent_id(self, value: Any) -> Any:
        """Return the replacement for a set or a circuit; None for all other values.

        pickle calls this for every object, however deeply nested.
        """
        if isinstance(value, set | frozenset):
            if id(value) in self.sets:  # it contains itself
                return "set", self.sets.index(id(value))
            inside = (*self.sets, id(value))
            return "set", sorted(_canonical(each, inside) for each in value)
        if hasattr(type(value), "qregs") and hasattr(value, "data"):  # a circuit has a unique name
            return "circuit", [_gate(value, each) for each in value.data]
        return None


class PlainPickler(_Canonical, pickle.Pickler):
    """Canonical form by pickle."""


class CodePickler(_Canonical, values.Pickler):
    """Canonical form by cloudpickle."""


def _gate(circuit: Any, instruction: Any) -> tuple[Any, ...]:
    places = [circuit.find_bit(bit).index for bit in (*instruction.qubits, *instruction.clbits)]
    return instruction.operation.name, [str(each) for each in instruction.operation.params], places


class SessionPart(Executor):
    """A session whose calls run on parts of nodes, or on nodes of a kind."""

    def __init__(self, session: Session, needs: Needs) -> None:
        self._session = session
        self._needs = needs

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function, as `submit` of the session does."""
        return self._session.submit_needing(self._needs, function, args, kwargs)

    def map(
        self,
        function: Callable[..., T],
        /,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[T]:
        """Call a function many times, as `map` of the session does."""
        return self._session.map_needing(self._needs, function, iterables, timeout, chunksize)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: the session's own end is its `with` block's."""


def results(futures: list[Future[T]], timeout: float | None) -> Iterator[T]:
    """Yield results without keeping them; cancel the rest if the consumer stops."""
    limit = None if timeout is None else monotonic() + timeout
    futures.reverse()
    try:
        while futures:
            yield _result(futures.pop(), None if limit is None else limit - monotonic())
    finally:
        for future in futures:
            future.cancel()


def _result(future: Future[T], timeout: float | None) -> T:
    """Return a result; cancel the call if it does not arrive in time."""
    try:
        return future.result(timeout)
    finally:
        future.cancel()


def error_of(future: Future[Any]) -> Exception:
    """The error of a failed call."""
    found = Future.exception(future)
    return found if isinstance(found, Exception) else QtideError(str(found))
