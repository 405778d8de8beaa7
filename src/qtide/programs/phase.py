"""Phases: what a program awaits. Awaiting a phase passes it to the program's driver.

A phase passes itself to the driver by yielding, so a program needs no event loop, context or
world: it is a plain coroutine that asks for phases and gets results.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from qtide.core.job import CommandSettings

from qtide.core.resources import Needs


class Unawaited:
    """A task or phase that a program created but has not awaited or made part of another yet.

    If the line that creates it also drops it, Python warns, as for a coroutine, that it will not
    run. One kept in a variable causes no warning, as the program may not need it.
    """

    _created: tuple[str, int] | None = None
    """File and line of the program that created it; None once used."""

    def use(self) -> None:
        """Mark it as awaited or as part of another phase."""
        object.__setattr__(self, "_created", None)

    def __del__(self) -> None:
        if self._created is None or sys.is_finalizing():
            return
        if self._created == _place(sys._getframe(1)):
            why = f"{self} was never awaited, so it does not run: write `await {self}`"
            warnings.warn_explicit(why, RuntimeWarning, *self._created)


U = TypeVar("U", bound=Unawaited)


def created(made: U) -> U:
    """Record the line of the caller's caller, which is the program, and return the object."""
    object.__setattr__(made, "_created", _place(sys._getframe(2)))
    return made


def _place(frame: FrameType) -> tuple[str, int]:
    return frame.f_code.co_filename, frame.f_lineno


class TaskAttempt(Protocol):
    """An attempt to run a task, as one of its nodes sees it."""

    @property
    def rank(self) -> int:
        """The number of the node among the task's nodes."""

    @property
    def gang(self) -> str:
        """A name that the nodes of this attempt share; empty if no process runs on them."""

    @property
    def key(self) -> str:
        """The task's place in the program, such as `3/0`."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""

    @property
    def settings(self) -> CommandSettings:
        """The run's settings for commands."""


TimeSpent = tuple[str, float]
"""The name of a function, and the seconds of one call of it."""

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, eq=False)
class Task(Unawaited, Generic[T_co]):
    """One call of a function on a node, or one call on each of `nodes` nodes at once (SPMD).

    Awaited by itself, it forms a phase and returns its result.
    """

    function: Callable[..., T_co]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 1
    limit: float | None = None
    """Maximum run time in seconds, on each of its nodes."""
    mpi: bool = False
    """Whether the calls get an MPI communicator over the nodes."""
    resources: Needs | None = None
    """What it needs of each node; None for the program's default, usually a whole node."""
    most: int | None = None
    """If set, it may run on `nodes` to so many nodes, as many as pay for themselves."""
    malleable: bool = False
    """Whether the number of its nodes may change while it runs."""

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__qualname__", self.function))

    @overload
    def on(
        self, nodes: int, most: int, *, malleable: Literal[True], mpi: bool = ...
    ) -> Task[T_co]: ...
    @overload
    def on(self, nodes: int, most: int | None = None, *, mpi: bool = ...) -> Task[list[T_co]]: ...
    def on(
        self, nodes: int, most: int | None = None, *, mpi: bool = False, malleable: bool = False
    ) -> Task[Any]:
        """Run the function on `nodes` nodes at the same time, or on `nodes` to `most`.

        Of a range, as many nodes are taken as pay for themselves, by how long the function took on
        other numbers of nodes.
        Each call gets the keywords `rank` and `size` or, with `mpi`, `comm`, which has the
        operations of mpi4py's communicators. The result is the list of results by rank.
        With defaults, `rank: int = 0, size: int = 1`, a type checker accepts that too.

        With `malleable`, the number of nodes may change while the task runs, and each call gets
        the keyword `job`, a `qtide.malleable.Job`. The result is that of rank 0.
        """
        if nodes < 1:
            raise ValueError(f"the task {self.name} needs at least one node, not {nodes}")
        if most is not None and most < nodes:
            raise ValueError(f"the task {self.name} cannot run on {nodes} to {most} nodes")
        if malleable and most is None:
            raise ValueError(
                f"the malleable task {self.name} needs a range: on({nodes}, MOST, malleable=True)"
            )
        made = replace(self, nodes=nodes, mpi=mpi or malleable, most=most, malleable=malleable)
        made._check_whole_nodes()
        self.use()
        return created(made)

    def within(self, seconds: float) -> Task[T_co]:
        """Return the same task, ended with TimedOut if it runs longer than `seconds`."""
        self.use()
        return created(replace(self, limit=_limit(seconds)))

    def keywords(self, attempt: TaskAttempt) -> dict[str, Any]:
        """The keyword arguments of one call; those of several also get `rank` and `size`."""
        if (self.nodes == 1 and self.most is None) or self.mpi:
            return dict(self.kwargs)
        return dict(self.kwargs) | {"rank": attempt.rank, "size": self.nodes}

    def result(self, results: list[Any]) -> Any:
        """The task's result, made of the results of its calls, by rank."""
        several = self.nodes > 1 or self.most is not None
        return results if several and not self.malleable else results[0]

    def needs(
        self,
        cores: int | None = None,
        gpus: int = 0,
        memory: str | int | None = None,
        kind: str | None = None,
    ) -> Task[T_co]:
        """Return the same task, to run on a part of a node, beside other tasks.

        It gets so many cores and GPUs of its own, and at most so much memory, such as `"16 GB"`.
        `kind` names a kind of nodes; alone, it means a whole node of that kind.
        """
        made = replace(self, resources=Needs.of(cores, gpus, memory, kind))
        made._check_whole_nodes()
        self.use()
        return created(made)

    def needs_of(self, default: Needs) -> Needs:
        """What it needs of each node, where `default` is what a task needs that says nothing."""
        if self.resources is None:
            return Needs(kind=default.kind) if self.malleable else default
        return self.resources

    def _check_whole_nodes(self) -> None:
        if self.malleable and self.resources is not None and not self.resources.whole:
            raise ValueError(
                f"the malleable task {self.name} takes whole nodes; its needs can only name a kind"
            )

    def starting(self) -> bool:
        """Called when its nodes are ready; return whether it still has to run."""
        return True

    def spent(self, result: Any) -> list[TimeSpent]:
        """The seconds of each call, if it stands for several that ran one after the other."""
        return []

    def succeeded(self, result: Any) -> None:
        """Called with the result, while other tasks of its phase may still run."""

    def failed(self, error: Exception) -> None:
        """Called when the task has finally failed."""

    def __str__(self) -> str:
        return f"task({self.name}, …)"

    def __await__(self) -> Generator[Any, Any, T_co]:
        self.use()
        results = yield Classical((self,))
        result: T_co = results[0]
        return result


@dataclass(frozen=True, eq=False)
class Classical(Unawaited):
    """Tasks that run at the same time; awaiting it returns the list of their results."""

    tasks: tuple[Task[Any], ...]
    kind = "classical"

    @property
    def names(self) -> list[str]:
        """Function names, one per call."""
        return [task.name for task in self.tasks]

    @cached_property
    def label(self) -> str:
        """Function names, each once with its number of calls."""
        names = self.names
        if len(names) == 1:
            return names[0]
        counted = Counter(names)
        return " + ".join(name if n == 1 else f"{n} × {name}" for name, n in counted.items())

    @property
    def nodes(self) -> int:
        """Number of nodes the phase can use."""
        return sum(task.nodes for task in self.tasks)

    def within(self, seconds: float) -> Classical:
        """Return the same tasks, each ended if it runs longer than `seconds`."""
        self.use()
        limit = _limit(seconds)
        return created(Classical(tuple(replace(task, limit=limit) for task in self.tasks)))

    def needs(
        self,
        cores: int | None = None,
        gpus: int = 0,
        memory: str | int | None = None,
        kind: str | None = None,
    ) -> Classical:
        """Return the same tasks, each with these needs unless it has its own."""
        self.use()
        needs = Needs.of(cores, gpus, memory, kind)
        tasks = (
            each if each.resources is not None else replace(each, resources=each.needs_of(needs))
            for each in self.tasks
        )
        return created(Classical(tuple(tasks)))

    def __str__(self) -> str:
        return f"classical({self.label})"

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        self.use()
        results: list[Any] = yield self
        return results


@dataclass(frozen=True, eq=False)
class Quantum(Unawaited):
    """A payload for a QPU; awaiting it returns the device's answer."""

    payload: Any
    shots: int | None = None
    limit: float | None = None
    """Seconds within which the QPU must answer."""
    seed: int | None = None
    """Seed of the answer; by default, derived from the phase's place in the run."""
    otherwise: Task[Any] | None = None
    """Classical equivalent, run if the QPU would take too long or gives no answer."""
    patience: float | None = None
    """Seconds the payload may wait for the QPU to begin; after that, the task runs."""
    kind = "quantum"

    @property
    def label(self) -> str:
        """Kind of payload; for several, their number and the kind of the first."""
        if isinstance(self.payload, list | tuple) and self.payload:
            number, kind = len(self.payload), type(self.payload[0]).__name__
            return kind if number == 1 else f"{number:,} × {kind}"
        return type(self.payload).__name__

    def starting(self) -> bool:
        """Called when the QPU is ready; return whether the payload still has to run."""
        return True

    def within(self, seconds: float) -> Quantum:
        """Return the same payload, cancelled with TimedOut if the QPU takes longer than `seconds`.

        The time starts when the job gets its lease and includes waiting in the device's queue.
        """
        self.use()
        return created(replace(self, limit=_limit(seconds)))

    def __str__(self) -> str:
        return f"quantum({self.label})"

    def __await__(self) -> Generator[Any, Any, Any]:
        self.use()
        return (yield self)


Phase = Classical | Quantum


@dataclass(frozen=True, eq=False)
class Together(Unawaited):
    """Phases or coroutines of phases, run concurrently; awaiting it returns their results."""

    parts: tuple[Task[Any] | Phase | Coroutine[Any, Any, Any], ...]

    def __str__(self) -> str:
        return "together(…)"

    def __await__(self) -> Generator[Any, Any, list[Any]]:
        self.use()
        results: list[Any] = yield self
        return results


def task(function: Callable[P, T_co], /, *args: P.args, **kwargs: P.kwargs) -> Task[T_co]:
    """Create a call of `function` to run on a node."""
    if not callable(function):
        raise TypeError(f"task() takes a function and its arguments, not {function!r}")
    for each in (*args, *kwargs.values()):
        if isinstance(each, Unawaited):
            each.use()
            raise TypeError(f"an argument of task() is {each} itself: write `await {each}`")
    return created(Task(function, args, kwargs))


R_co = TypeVar("R_co", covariant=True)
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T = TypeVar("T")


class ClassicalOf(Classical, Generic[R_co]):
    """Typing-only view of a phase of tasks that carries the types of their results.

    As with `asyncio.gather`, results of different types are typed as a tuple, although they are a
    list, so that each can have its own type.
    """

    if TYPE_CHECKING:

        def within(self, seconds: float) -> ClassicalOf[R_co]:
            """Return the same tasks, each with a time limit."""

        def needs(
            self,
            cores: int | None = None,
            gpus: int = 0,
            memory: str | int | None = None,
            kind: str | None = None,
        ) -> ClassicalOf[R_co]:
            """Return the same tasks, each with these needs."""

        def __await__(self) -> Generator[Any, Any, R_co]: ...  # type: ignore[override]


class TogetherOf(Together, Generic[R_co]):
    """Typing-only view of phases that run together."""

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Any, Any, R_co]: ...  # type: ignore[override]


@overload
def classical(a: Task[T1], /) -> ClassicalOf[list[T1]]: ...
@overload
def classical(a: Task[T1], b: Task[T2], /) -> ClassicalOf[tuple[T1, T2]]: ...
@overload
def classical(a: Task[T1], b: Task[T2], c: Task[T3], /) -> ClassicalOf[tuple[T1, T2, T3]]: ...
@overload
def classical(
    a: Task[T1], b: Task[T2], c: Task[T3], d: Task[T4], /
) -> ClassicalOf[tuple[T1, T2, T3, T4]]: ...
@overload
def classical(
    a: Task[T1], b: Task[T2], c: Task[T3], d: Task[T4], e: Task[T5], /
) -> ClassicalOf[tuple[T1, T2, T3, T4, T5]]: ...
@overload
def classical(*tasks: Task[T]) -> ClassicalOf[list[T]]: ...
def classical(*tasks: Task[Any]) -> Classical:
    """Create a phase of tasks that run at the same time, each on a node."""
    for each in tasks:
        if not isinstance(each, Task):
            raise TypeError(f"classical() takes task(function, ...), not {each!r}")
        each.use()
    if not tasks:
        raise ValueError("classical() needs at least one task")
    return created(Classical(tasks))


def quantum(
    payload: Any,
    *,
    shots: int | None = None,
    otherwise: Task[Any] | None = None,
    patience: float | None = None,
) -> Quantum:
    """Create a phase that runs `payload` on a QPU, or a task in its place.

    The task `otherwise` runs if the QPU is not expected to begin within `patience` seconds (by
    default: if it is expected to end later than the task), or if it gives no answer.
    """
    if isinstance(payload, Unawaited):
        payload.use()
        raise TypeError(f"the payload of quantum() is {payload} itself: write `await {payload}`")
    return created(Quantum(payload, shots, None, None, *candidate(otherwise, patience)))


def candidate(
    otherwise: Task[Any] | None, patience: float | None
) -> tuple[Task[Any] | None, float | None]:
    """Validate a payload's classical equivalent and the patience with the QPU."""
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


@overload
def together(a: Awaitable[T1], /) -> TogetherOf[list[T1]]: ...
@overload
def together(a: Awaitable[T1], b: Awaitable[T2], /) -> TogetherOf[tuple[T1, T2]]: ...
@overload
def together(
    a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], /
) -> TogetherOf[tuple[T1, T2, T3]]: ...
@overload
def together(
    a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], /
) -> TogetherOf[tuple[T1, T2, T3, T4]]: ...
@overload
def together(
    a: Awaitable[T1], b: Awaitable[T2], c: Awaitable[T3], d: Awaitable[T4], e: Awaitable[T5], /
) -> TogetherOf[tuple[T1, T2, T3, T4, T5]]: ...
@overload
def together(*parts: Awaitable[T]) -> TogetherOf[list[T]]: ...
def together(*parts: Any) -> Together:
    """Run phases, or coroutines of phases, concurrently."""
    for part in parts:
        if not isinstance(part, Task | Classical | Quantum | Coroutine):
            raise TypeError(f"together() takes phases and coroutines of phases, not {part!r}")
        if isinstance(part, Unawaited):
            part.use()
    return created(Together(parts))


def _limit(seconds: float) -> float:
    if not (_is_number(seconds) and 0 < seconds < inf):
        raise ValueError(f"within() takes a number of seconds above 0, not {seconds!r}")
    return float(seconds)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
