"""Batches: a node makes several calls as one task, so that short calls share one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from qtide.core.errors import NodeLost
from qtide.core.values import Unstorable, dumps
from qtide.interfaces.sessions.session_call import SessionCall
from qtide.programs.calls import CallResult, Initializer, run_call, run_calls
from qtide.programs.phase import Classical, Task, TimeSpent

Outcome = tuple[SessionCall, Any, Exception | None]
"""A call with its result or its exception."""
Ended = Callable[[list[Outcome], float], None]
"""Callback for the outcomes of a batch's calls and the seconds they took in total."""


class CallFailed(Exception):  # noqa: N818 - the name says what happened
    """A call raised an exception that cannot be pickled; the message describes it."""


@dataclass(frozen=True, eq=False)
class CallBatch(Task[Any]):
    """Calls that a node makes one after the other; each has its own outcome."""

    calls: list[SessionCall] = field(default_factory=list)
    """The calls that have not ended."""
    ended: Ended = lambda *_: None
    names: tuple[str, ...] = ()
    """The function name of each call."""

    @staticmethod
    def of(
        calls: Sequence[SessionCall], ended: Ended, initializer: Initializer | None = None
    ) -> CallBatch:
        """Create a batch; a single call needs no isolation from others."""
        own: dict[str, Any] = {
            "calls": list(calls),
            "ended": ended,
            "names": tuple(call.name for call in calls),
            "resources": calls[0].needs,
        }
        if len(calls) == 1:
            return CallBatch(run_call, (initializer, *calls[0].called), **own)
        return CallBatch(run_calls, (initializer, [call.called for call in calls]), **own)

    @property
    def name(self) -> str:
        """The task's name in the ledger."""
        return self.names[0]

    def starting(self) -> bool:
        """Drop cancelled calls; from now on, the others can no longer be cancelled."""
        self.calls[:] = [call for call in self.calls if call.future.start()]
        if self.function is run_calls:
            self.args[1][:] = [call.called for call in self.calls]
        return bool(self.calls)

    def succeeded(self, result: Any) -> None:
        """Pass each call its result without keeping a reference to it."""
        calls = self.calls.copy()
        self.calls.clear()
        if not calls:  # all calls were cancelled
            return
        if self.function is run_call:
            self.ended([(calls[0], result.take(), None)], result.seconds)
        else:
            seconds = sum(each.seconds for each in result)
            outcomes = [_outcome(*each) for each in zip(calls, result, strict=True)]
            result.clear()
            self.ended(outcomes, seconds)

    def spent(self, result: Any) -> list[TimeSpent]:
        """The seconds of each of several calls."""
        if self.function is run_call:
            return []
        return [(call.name, each.seconds) for call, each in zip(self.calls, result, strict=True)]

    def failed(self, error: Exception) -> None:
        """Pass the error to the calls, unless one of several may have caused it.

        In that case, the worker retries each call on its own.
        """
        if len(self.calls) > 1 and isinstance(error, Unstorable | NodeLost):
            return
        calls = self.calls.copy()
        self.calls.clear()
        if isinstance(error, Unstorable):
            error = _unsendable(calls[0]) or error
        self.ended([(call, None, error) for call in calls], 0.0)


@dataclass(frozen=True, eq=False)
class CallPhase(Classical):
    """A phase identified by its calls, since their division into batches may vary between runs."""

    tasks: tuple[CallBatch, ...]

    @property
    def names(self) -> list[str]:
        """The function name of each call."""
        return [name for each in self.tasks for name in each.names]


def _unsendable(call: SessionCall) -> Unstorable | None:
    """Return an error that names the call if its function or arguments cannot be pickled."""
    try:
        dumps(call.called)
    except Exception as error:
        return Unstorable(
            f"{call.name} or its arguments cannot be pickled, so no node can call it: {error}"
        )
    return None


def _outcome(call: SessionCall, result: CallResult) -> Outcome:
    if not result.error:
        return call, result.value, None
    error = result.exception or CallFailed(result.error)
    error.add_note(f"in the call {call.key} of {call.name}")
    return call, None, error
