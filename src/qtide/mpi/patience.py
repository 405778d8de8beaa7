"""Waiting for MPI without hanging: MPICH says nothing when the other side is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

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
"""How often large data is tested before other processes of this machine have their turn."""
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
        if eager and tests % EAGER:
            continue
        if eager or time.monotonic() - began < SPIN:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, NAP_MOST)


def call(function: Callable[[], T], watch: Watch) -> T:
    """Make a call that only exists in a blocking form, in a thread, and watch meanwhile.

    MPICH lets no other call pass while one is connecting. So a call that was given up is waited
    for: it has a limit of its own. If it hangs nevertheless, nothing more can be done with MPI.
    """
    outcome: Future[T] = Future()
    threading.Thread(target=_run, args=(function, outcome), daemon=True, name="mpi").start()
    try:
        return _outcome(outcome, watch)
    except NodesLost:
        if not wait([outcome], GRACE).done:
            library().stuck = True
            raise Stuck(
                "MPI hangs, as a node was lost while it was being connected; start the program "
                "again, from what was saved"
            ) from None
        raise


def _outcome(outcome: Future[T], watch: Watch) -> T:
    last = time.monotonic() + CALL_LIMIT
    while time.monotonic() < last:
        with suppress(TimeoutError):
            return outcome.result(LOOK)
        watch()
    raise NodesLost(f"MPI has not joined the processes of the job within {CALL_LIMIT:g} s")


def _run(function: Callable[[], T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:
        outcome.set_exception(error)
