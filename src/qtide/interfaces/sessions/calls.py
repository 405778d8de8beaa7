"""Digests of calls: whether a script that is started again makes the same call as before."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil
from typing import Any, Protocol, TypeVar

from qtide.backends.clusters.cluster import NodeLost
from qtide.core.values import Unstorable
from qtide.interfaces.sessions.on_node import Called, CallResult, one, several
from qtide.programs.phase import Classical, Task

SETS = (b"\x8f", b"\x91")
"""Opcodes of pickled sets, whose order differs from process to process."""


def digest(value: Any) -> str:
    """A short word for a value, the same in every process."""
    return blake2b(_bytes(value), digest_size=6).hexdigest()


def function_name(function: Callable[..., Any]) -> str:
    """What a function is called in a script."""
    return str(getattr(function, "__qualname__", None) or type(function).__name__)


def _bytes(value: Any) -> bytes:
    if hasattr(value, "qregs") and hasattr(value, "data"):  # a circuit, which has a unique name
        return _bytes([_gate(value, each) for each in value.data])
    if isinstance(value, list | tuple) and value and hasattr(value[0], "qregs"):
        return b"".join(map(_bytes, value))
    data = _pickled(value)
    return data if not any(each in data for each in SETS) else _ordered(value)


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        from qtide.core.values import dumps

        return dumps(value)


def _ordered(value: Any) -> bytes:
    """Elements of sets in the order of their digests; what is no container, as it is pickled."""
    if isinstance(value, set | frozenset):
        return b"{" + b",".join(sorted(_bytes(each) for each in value)) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_bytes(each) for each in value) + b"]"
    if isinstance(value, dict):
        return b"(" + b",".join(_bytes(key) + _bytes(each) for key, each in value.items()) + b")"
    return _pickled(value)


def _gate(circuit: Any, instruction: Any) -> tuple[Any, ...]:
    places = [circuit.find_bit(bit).index for bit in (*instruction.qubits, *instruction.clbits)]
    return instruction.operation.name, [str(each) for each in instruction.operation.params], places


@dataclass(eq=False)
class SessionCall:
    """What the script asked for; `key` is its place in the script."""

    key: str
    asked: str
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
        """As a node takes it."""
        return self.function, self.args, self.kwargs


class CallFailed(Exception):  # noqa: N818 - what happened
    """A call raised something that cannot be brought back; the text is what there is."""


Outcome = tuple[SessionCall, Any, Exception | None]
"""A call with its result, or with what it raised."""


@dataclass(frozen=True, eq=False)
class Batch(Task[Any]):
    """Calls that a node makes in a row, as one task; each of them has its own outcome."""

    calls: tuple[SessionCall, ...] = ()
    ended: Callable[[list[Outcome], float], None] = lambda *_: None
    """Called with all outcomes, and with how long they took."""

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return self.calls[0].name

    def succeeded(self, result: Any) -> None:
        """Give each call what became of it."""
        if len(self.calls) == 1:
            self.ended([(self.calls[0], result.value, None)], result.seconds)
        else:
            found, seconds = result
            self.ended([_outcome(*each) for each in zip(self.calls, found, strict=True)], seconds)

    def failed(self, error: Exception) -> None:
        """None of the calls has a result; if one is to blame, each is to be tried by itself."""
        if len(self.calls) > 1 and isinstance(error, Unstorable | NodeLost):
            return
        if isinstance(error, Unstorable):
            error = _unsendable(self.calls[0]) or error
        self.ended([(call, None, error) for call in self.calls], 0.0)


@dataclass(frozen=True, eq=False)
class Batches(Classical):
    """A phase known by its calls: how many batches they are put in may differ every time."""

    tasks: tuple[Batch, ...]

    @property
    def names(self) -> list[str]:
        """The functions that are called, call by call."""
        return [call.name for each in self.tasks for call in each.calls]


def batch(calls: Sequence[SessionCall], ended: Callable[[list[Outcome], float], None]) -> Batch:
    """Calls as one task; a single one needs no care for the others."""
    if len(calls) == 1:
        return Batch(one, calls[0].called, calls=tuple(calls), ended=ended)
    return Batch(several, ([call.called for call in calls],), calls=tuple(calls), ended=ended)


def _unsendable(call: SessionCall) -> Unstorable | None:
    """What to say about a call whose function or arguments cannot be pickled."""
    import cloudpickle

    try:
        cloudpickle.dumps(call.called)
    except Exception as error:
        return Unstorable(
            f"{call.name} or its arguments cannot be pickled, so no node can call it: {error}"
        )
    return None


def _outcome(call: SessionCall, said: CallResult) -> Outcome:
    if not said.error:
        return call, said.value, None
    try:
        error = said.value
    except Exception:
        error = CallFailed(said.error)
    if not isinstance(error, Exception):
        error = CallFailed(said.error)
    error.add_note(f"in the call {call.key} of {call.name}")
    return call, None, error


TRIP = 0.05
"""Seconds that a chunk should take: many times as long as the trip to a node."""
WORTH = 0.005
"""Seconds below which a chunk is not divided further, whoever is idle meanwhile."""
ROUNDS = 4
"""How many chunks each node should get at least, so that all end at about the same time."""
PROBES = 2
"""How many calls each node gets to find out."""
MOST = 1000
"""The most calls of a chunk."""


class Chunks:
    """Knows how long calls of each function take."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._seconds: dict[str, float] = {}

    def learn(self, name: str, seconds: float) -> None:
        """A call took so long; the latest count most."""
        known = self._seconds.get(name, seconds)
        self._seconds[name] = (known + seconds) / 2

    def probes(self, calls: Sequence[SessionCall]) -> int:
        """How many calls are to be made first, one by one; 0 if there is nothing to find out."""
        few = len(calls) <= PROBES * ROUNDS * self._nodes
        return 0 if few or calls[-1].name in self._seconds else PROBES * self._nodes

    def divided(self, calls: Sequence[SessionCall], least: int = 1) -> list[Sequence[SessionCall]]:
        """The calls in chunks that are neither too small nor too few."""
        size = max(least, self._size(calls))
        return [calls[start : start + size] for start in range(0, len(calls), size)]

    def _size(self, calls: Sequence[SessionCall]) -> int:
        longest = max(self._seconds.get(name, TRIP) for name in {each.name for each in calls})
        fair = ceil(len(calls) / (ROUNDS * self._nodes))
        worth, most = (int(each / max(longest, 1e-6)) for each in (WORTH, TRIP))
        return max(1, min(MOST, max(fair, worth), most))


T = TypeVar("T")


class WaitListener(Protocol):
    """A session, as its futures see it."""

    def attend(self, future: Future[Any], timeout: float | None = None) -> None:
        """The script is about to wait for a future."""

    def seen(self, future: SessionFuture[Any]) -> None:
        """The script has seen how a call failed."""


class Waiters(list[Any]):
    """The list in which `wait` and `as_completed` enter themselves before they wait.

    In virtual time, entering is what lets time pass; what ends meanwhile is told at once.
    """

    def __init__(self, future: SessionFuture[Any], session: WaitListener) -> None:
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


class SessionFuture(Future[T]):
    """The result of a call of a session."""

    def __init__(self, session: WaitListener) -> None:
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
