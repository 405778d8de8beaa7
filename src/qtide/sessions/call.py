"""One call of a script: a function for a node, or a payload for the QPU, and its future."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qtide.clusters.cluster import NodeLost
from qtide.jobs.values import Unstorable
from qtide.programs.phase import Classical, Task
from qtide.sessions.digest import function_name
from qtide.sessions.pending import Pending
from qtide.sessions.remote import Called, Said, one, several


@dataclass(eq=False)
class Call:
    """What the script asked for; `key` is its place in the script."""

    key: str
    asked: str
    future: Pending[Any]
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


Outcome = tuple[Call, Any, Exception | None]
"""A call with its result, or with what it raised."""


@dataclass(frozen=True, eq=False)
class Batch(Task[Any]):
    """Calls that a node makes in a row, as one task; each of them has its own outcome."""

    calls: tuple[Call, ...] = ()
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


def batch(calls: Sequence[Call], ended: Callable[[list[Outcome], float], None]) -> Batch:
    """Calls as one task; a single one needs no care for the others."""
    if len(calls) == 1:
        return Batch(one, calls[0].called, calls=tuple(calls), ended=ended)
    return Batch(several, ([call.called for call in calls],), calls=tuple(calls), ended=ended)


def _unsendable(call: Call) -> Unstorable | None:
    """What to say about a call whose function or arguments cannot be pickled."""
    import cloudpickle

    try:
        cloudpickle.dumps(call.called)
    except Exception as error:
        return Unstorable(
            f"{call.name} or its arguments cannot be pickled, so no node can call it: {error}"
        )
    return None


def _outcome(call: Call, said: Said) -> Outcome:
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
