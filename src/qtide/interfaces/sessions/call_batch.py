"""Batches: a node makes several calls as one task, so that short calls share one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from qtide.core.errors import NodeLost
from qtide.core.values import Unstorable, dumps
from qtide.interfaces.sessions.on_node import CallResult, Initializer, run_call, run_calls
from qtide.interfaces.sessions.session_call import SessionCall
from qtide.programs.phase import Classical, Task

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
            results, seconds = result
            outcomes = [_outcome(*each) for each in zip(calls, results, strict=True)]
            results.clear()
            self.ended(outcomes, seconds)

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
    try:
        error = result.value
    except Exception:
        error = None
    if not isinstance(error, Exception):
        error = CallFailed(result.error)
    error.add_note(f"in the call {call.key} of {call.name}")
    return call, None, error


WORTHWHILE = 0.05
"""Target duration of a batch in seconds: many times the round trip to a node."""
SHORTEST = 0.005
"""Batches shorter than this, in seconds, are not divided further, even if nodes are idle."""
ROUNDS = 4
"""Minimum number of batches per node, so that all nodes end at about the same time."""
PROBES = 2
"""Calls per node to make one by one first, if their duration is unknown."""
MOST_CALLS = 1000
"""Maximum number of calls per batch."""


class BatchSizes:
    """Chooses batch sizes by the earlier durations of each function's calls."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        """Number of nodes, or of parts of nodes, that make calls at the same time."""
        self._seconds: dict[str, float] = {}

    def learn(self, name: str, seconds: float) -> None:
        """Record the duration of a call; recent calls weigh most."""
        known = self._seconds.get(name, seconds)
        self._seconds[name] = (known + seconds) / 2

    def probes(self, calls: Sequence[SessionCall]) -> int:
        """Return the number of calls to make first to measure their duration."""
        few = len(calls) <= PROBES * ROUNDS * self._nodes
        return 0 if few or calls[-1].name in self._seconds else PROBES * self._nodes

    def size(self, calls: Sequence[SessionCall]) -> int:
        """Return the number of calls per batch: batches must be neither too short nor too few."""
        longest = max(self._seconds.get(name, WORTHWHILE) for name in {each.name for each in calls})
        fair = ceil(len(calls) / (ROUNDS * self._nodes))
        least, most = (int(each / max(longest, 1e-6)) for each in (SHORTEST, WORTHWHILE))
        return max(1, min(MOST_CALLS, max(fair, least), most))
