"""Phases: what a program awaits. Awaiting one hands it to the driver of the program.

A phase hands itself to the driver by yielding, so a program needs no event loop, no context and no
world: it is a plain coroutine that asks for phases and gets results.
"""

from __future__ import annotations

import linecache
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from opcode import opmap
from types import FrameType
from typing import Any, Generic, ParamSpec, TypeVar

POP_TOP = opmap["POP_TOP"]
"""What Python does with the value of a statement that nobody uses."""


class Asked:
    """A task or a phase, from when it is created until it is awaited, or part of another one."""

    _used = False

    def use(self) -> None:
        """It is awaited, or part of what is."""
        object.__setattr__(self, "_used", True)

    def __del__(self) -> None:
        """Warn if it was a statement by itself, and only then: one in a variable may be meant."""
        if not self._used:
            with suppress(ValueError):  # the interpreter is ending
                if _is_statement(sys._getframe(1), f"{type(self).__name__.lower()}("):
                    why = f"{self} was never awaited, so it does not run: write `await {self}`"
                    warnings.warn(why, RuntimeWarning, stacklevel=2)


def _is_statement(frame: FrameType, word: str) -> bool:
    """Whether Python has just dropped the value of a statement that creates such a thing."""
    dropped = frame.f_code.co_code[frame.f_lasti] == POP_TOP
    return dropped and word in linecache.getline(frame.f_code.co_filename, frame.f_lineno)


P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Task(Asked, Generic[T_co]):
    """One call of a function on a node, or one call on each of `nodes` nodes at once (SPMD).

    Awaited by itself, it is a phase of its own and gives its result.
    """

    function: Callable[..., T_co]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 1
    limit: float | None = None
    """Seconds for which it may run, on each of its nodes."""
    mpi: bool = False
    """Whether its calls get an MPI communicator over its nodes."""

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__qualname__", self.function))

    def on(self, nodes: int, *, mpi: bool = False) -> Task[list[T_co]]:
        """The same function on `nodes` nodes at the same time.

        Each call gets the keywords `rank` and `size` or, as an MPI program, `comm`, which has the
        operations of mpi4py's communicators; the result is the list of results by rank.
        With defaults, `rank: int = 0, size: int = 1`, a type checker knows that too.
        """
        if nodes < 1:
            raise ValueError(f"the task {self.name} needs at least one node, not {nodes}")
        self.use()
        return replace(self, nodes=nodes, mpi=mpi)  # type: ignore[return-value]  # it gives a list

    def within(self, seconds: float) -> Task[T_co]:
        """The same task, ended with TimedOut if it runs for longer than so many seconds."""
        self.use()
        return replace(self, limit=_limit(seconds))

    def succeeded(self, result: Any) -> None:
        """It has its result, while others of its phase may go on; for whoever listens to that."""

    def failed(self, error: Exception) -> None:
        """It has none, for good."""

    def __str__(self) -> str:
        return f"task({self.name}, …)"

    def __await__(self) -> Generator[Any, Any, T_co]:
        self.use()
        results = yield Classical((self,))
        result: T_co = results[0]
        return result


@dataclass(frozen=True, eq=False)
class Classical(Asked):
    """Tasks that run at the same time; awaited, it gives the list of their results."""

    tasks: tuple[Task[Any], ...]
    kind = "classical"

    @property
    def names(self) -> list[str]:
        """The functions that are called, call by call."""
        return [task.name for task in self.tasks]

    @cached_property
    def label(self) -> str:
        """The names of the functions, each once."""
        names = self.names
        if len(names) == 1:
            return names[0]
        counted = Counter(names)
        return " + ".join(name if n == 1 else f"{n} × {name}" for name, n in counted.items())

    @property
    def nodes(self) -> int:
        """How many nodes it can use."""
        return sum(task.nodes for task in self.tasks)

    def within(self, seconds: float) -> Classical:
        """The same tasks, each of them ended if it runs for longer than so many seconds."""
        self.use()
        return Classical(tuple(task.within(seconds) for task in self.tasks))

    def __str__(self) -> str:
        return f"classical({self.label})"

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        self.use()
        results: list[Any] = yield self
        return results


@dataclass(frozen=True, eq=False)
class Quantum(Asked):
    """A payload for a QPU; awaited, it gives the device's answer."""

    payload: Any
    shots: int | None = None
    limit: float | None = None
    """Seconds within which the QPU has to answer."""
    seed: int | None = None
    """Of its answer; by default, that of the phase's place in the run."""
    otherwise: Task[Any] | None = None
    """Its classical equivalent, for when the QPU would take too long, or has no answer."""
    patience: float | None = None
    """Seconds that the payload may wait until the QPU begins with it; then the task runs."""
    kind = "quantum"

    @property
    def label(self) -> str:
        """The kind of payload; of several, their number and the kind of the first."""
        if isinstance(self.payload, list | tuple) and self.payload:
            number, kind = len(self.payload), type(self.payload[0]).__name__
            return kind if number == 1 else f"{number:,} × {kind}"
        return type(self.payload).__name__

    def within(self, seconds: float) -> Quantum:
        """The same payload, cancelled with TimedOut if the QPU takes longer than so many seconds.

        They count from when the job has its lease; waiting in the queue of the device counts, too.
        """
        self.use()
        return replace(self, limit=_limit(seconds))

    def __str__(self) -> str:
        return f"quantum({self.label})"

    def __await__(self) -> Generator[Any, Any, Any]:
        self.use()
        return (yield self)


Phase = Classical | Quantum


@dataclass(frozen=True, eq=False)
class Together(Asked):
    """Phases, or coroutines that await phases, run concurrently; gives the list of results."""

    parts: tuple[Task[Any] | Phase | Coroutine[Any, Any, Any], ...]

    def __str__(self) -> str:
        return "together(…)"

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        self.use()
        results: list[Any] = yield self
        return results


def task(function: Callable[P, T_co], /, *args: P.args, **kwargs: P.kwargs) -> Task[T_co]:
    """A call of `function` to be run on a node."""
    if not callable(function):
        raise TypeError(f"task() takes a function and its arguments, not {function!r}")
    for each in (*args, *kwargs.values()):
        if isinstance(each, Asked):
            each.use()
            raise TypeError(f"an argument of task() is {each} itself: write `await {each}`")
    return Task(function, args, kwargs)


def classical(*tasks: Task[Any]) -> Classical:
    """A phase of tasks that run at the same time, each on a node."""
    for each in tasks:
        if not isinstance(each, Task):
            raise TypeError(f"classical() takes task(function, ...), not {each!r}")
        each.use()
    if not tasks:
        raise ValueError("classical() needs at least one task")
    return Classical(tasks)


def quantum(
    payload: Any,
    *,
    shots: int | None = None,
    otherwise: Task[Any] | None = None,
    patience: float | None = None,
) -> Quantum:
    """A phase that runs `payload` on a QPU, or a task in place of that.

    The task `otherwise` runs if the QPU should not begin within `patience` seconds (by default: if
    it should end later than the task), or has no answer.
    """
    if isinstance(payload, Asked):
        payload.use()
        raise TypeError(f"the payload of quantum() is {payload} itself: write `await {payload}`")
    return Quantum(payload, shots, None, None, *candidate(otherwise, patience))


def candidate(
    otherwise: Task[Any] | None, patience: float | None
) -> tuple[Task[Any] | None, float | None]:
    """The classical equivalent of a payload and the patience with the QPU, if they make sense."""
    if otherwise is None:
        if patience is not None:
            raise ValueError("patience= needs a task that runs instead: otherwise=task(f, ...)")
        return None, None
    if not isinstance(otherwise, Task):
        raise TypeError(f"otherwise= takes task(function, ...), not {otherwise!r}")
    otherwise.use()
    if patience is not None and not (_is_number(patience) and 0 <= patience < inf):
        raise ValueError(f"patience= takes a number of seconds from 0 on, not {patience!r}")
    return otherwise, patience


def together(*parts: Task[Any] | Phase | Coroutine[Any, Any, Any]) -> Together:
    """Run phases, or coroutines of phases, concurrently."""
    for part in parts:
        if not isinstance(part, Task | Classical | Quantum | Coroutine):
            raise TypeError(f"together() takes phases and coroutines of phases, not {part!r}")
        if isinstance(part, Asked):
            part.use()
    return Together(parts)


def _limit(seconds: float) -> float:
    if not (_is_number(seconds) and 0 < seconds < inf):
        raise ValueError(f"within() takes a number of seconds above 0, not {seconds!r}")
    return float(seconds)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
