"""Batches: calls that a node makes in a row, as one task; short calls pay for one trip together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from qtide.backends.clusters.cluster import NodeLost
from qtide.core.values import Unstorable, dumps
from qtide.interfaces.sessions.on_node import CallResult, Initializer, run_call, run_calls
from qtide.interfaces.sessions.session_call import SessionCall
from qtide.programs.phase import Classical, Task

Outcome = tuple[SessionCall, Any, Exception | None]
"""A call with its result, or with what it raised."""
Ended = Callable[[list[Outcome], float], None]
"""Takes the outcomes of all calls of a batch, and the seconds that they took."""


class CallFailed(Exception):  # noqa: N818 - what happened
    """A call raised something that cannot be pickled; the text is what is known of it."""


@dataclass(frozen=True, eq=False)
class CallBatch(Task[Any]):
    """Calls that a node makes in a row; each of them has its own outcome."""

    calls: list[SessionCall] = field(default_factory=list)
    """The calls that have not ended."""
    ended: Ended = lambda *_: None
    names: tuple[str, ...] = ()
    """The functions, call by call."""

    @staticmethod
    def of(
        calls: Sequence[SessionCall], ended: Ended, initializer: Initializer | None = None
    ) -> CallBatch:
        """Make a task of calls; a single one needs no care for the others."""
        own: dict[str, Any] = {
            "calls": list(calls),
            "ended": ended,
            "names": tuple(call.name for call in calls),
        }
        if len(calls) == 1:
            return CallBatch(run_call, (initializer, *calls[0].called), **own)
        return CallBatch(run_calls, (initializer, [call.called for call in calls]), **own)

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return self.names[0]

    def starting(self) -> bool:
        """Leave out the calls that were cancelled; the others can no longer be."""
        self.calls[:] = [call for call in self.calls if call.future.start()]
        if self.function is run_calls:
            self.args[1][:] = [call.called for call in self.calls]
        return bool(self.calls)

    def succeeded(self, result: Any) -> None:
        """Give each call its result, and keep none of them."""
        calls = self.calls.copy()
        self.calls.clear()
        if not calls:  # all were cancelled
            return
        if self.function is run_call:
            self.ended([(calls[0], result.take(), None)], result.seconds)
        else:
            results, seconds = result
            outcomes = [_outcome(*each) for each in zip(calls, results, strict=True)]
            results.clear()
            self.ended(outcomes, seconds)

    def failed(self, error: Exception) -> None:
        """Tell the calls; if one of several may be to blame, each is tried by itself instead."""
        if len(self.calls) > 1 and isinstance(error, Unstorable | NodeLost):
            return
        calls = self.calls.copy()
        self.calls.clear()
        if isinstance(error, Unstorable):
            error = _unsendable(calls[0]) or error
        self.ended([(call, None, error) for call in calls], 0.0)


@dataclass(frozen=True, eq=False)
class CallPhase(Classical):
    """A phase known by its calls: how many batches they are put in may differ every time."""

    tasks: tuple[CallBatch, ...]

    @property
    def names(self) -> list[str]:
        """The functions that are called, call by call."""
        return [name for each in self.tasks for name in each.names]


def _unsendable(call: SessionCall) -> Unstorable | None:
    """Say which call cannot be sent, if its function or arguments cannot be pickled."""
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
"""Seconds that a batch should take: many times as long as the trip to a node."""
SHORTEST = 0.005
"""Seconds below which a batch is not divided further, even if nodes are idle."""
ROUNDS = 4
"""Batches that each node should get at least, so that all nodes end at about the same time."""
PROBES = 2
"""Calls that each node makes first, one by one, if it is not known how long they take."""
MOST_CALLS = 1000
"""The most calls of a batch."""


class BatchSizes:
    """Chooses the sizes of batches, by how long calls of each function took before."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._seconds: dict[str, float] = {}

    def learn(self, name: str, seconds: float) -> None:
        """Note the length of a call; the latest count most."""
        known = self._seconds.get(name, seconds)
        self._seconds[name] = (known + seconds) / 2

    def probes(self, calls: Sequence[SessionCall]) -> int:
        """Return how many calls to make first, to learn how long they take."""
        few = len(calls) <= PROBES * ROUNDS * self._nodes
        return 0 if few or calls[-1].name in self._seconds else PROBES * self._nodes

    def size(self, calls: Sequence[SessionCall]) -> int:
        """Return how many calls make a batch, so that batches are neither too short nor too few."""
        longest = max(self._seconds.get(name, WORTHWHILE) for name in {each.name for each in calls})
        fair = ceil(len(calls) / (ROUNDS * self._nodes))
        least, most = (int(each / max(longest, 1e-6)) for each in (SHORTEST, WORTHWHILE))
        return max(1, min(MOST_CALLS, max(fair, least), most))
