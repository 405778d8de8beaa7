"""Waiting for MPI without hanging: MPICH says nothing when the other side is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Generic, TypeVar

from qtide.errors import QtideError
from qtide.mpi.library import library
from qtide.mpi.lost import NodesLost

T = TypeVar("T")

Watch = Callable[[], None]
"""Raises if what is waited for will never come."""

SPIN = 0.002
"""Seconds in which an answer is looked for without a pause,"""
NAP_FIRST, NAP_MOST = 50e-6, 1e-3
"""and the pauses from then on."""
EAGER = 64
"""How often large data is tested before other processes of this machine have their turn,"""
NAP_EAGER = 20e-6
"""for so many seconds: who sleeps has the processor back sooner than who yields."""
LOOK = 0.002
"""Seconds between two looks at whether a blocking call is still worth waiting for."""
CALL_LIMIT = 60.0
"""Seconds within which a blocking call has to end if all who take part are there."""
GRACE = 10.0
"""Seconds within which a blocking call has to end that was given up; its own limit is shorter."""


class Stuck(QtideError):  # noqa: N818 - what happened
    """MPI hangs: no other call would return either."""


def complete(request: Any, watch: Watch, *, eager: bool = False) -> None:
    """Wait for a non-blocking operation; if eager, without pauses, for large data."""
    began, nap = time.monotonic(), NAP_FIRST
    for tests in count():  # MPICH only makes progress while it is tested
        if request.Test():
            return
        watch()
        if eager:
            if tests % EAGER == 0:
                time.sleep(NAP_EAGER)
        elif time.monotonic() - began < SPIN:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, NAP_MOST)


def call(function: Callable[[], T], watch: Watch) -> T:
    """Make a call that only exists in a blocking form, in a thread, and watch meanwhile.

    MPICH lets no other call pass while one is connecting. So a call that was given up is waited
    for: it has a limit of its own. If it hangs nevertheless, nothing more can be done with MPI.
    """
    made = _Call(function)
    try:
        _await(made, watch)
    except NodesLost:
        if not made.ended.wait(GRACE):
            library().stuck = True
            raise Stuck(
                "MPI hangs, as a node was lost while it was being connected; start the program "
                "again, from what was saved"
            ) from None
        raise
    if made.error is not None:
        raise made.error
    return made.result


class _Call(Generic[T]):
    """A call in a thread of its own; concurrent.futures would take newcomers longer to import."""

    result: T

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.error: BaseException | None = None
        self.ended = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="mpi").start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


def _await(made: _Call[T], watch: Watch) -> None:
    last = time.monotonic() + CALL_LIMIT
    while not made.ended.wait(LOOK):
        watch()
        if time.monotonic() > last:
            raise NodesLost(f"MPI has not joined the processes of the job in {CALL_LIMIT:g} s")
