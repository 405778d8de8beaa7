"""Waiting for MPI without hanging: MPICH says nothing when the other side is gone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from qtide.mpi.library import library

T = TypeVar("T")

Watch = Callable[[], None]
"""Raises if what is waited for will never come."""

SPIN = 0.002
"""Seconds in which an answer is looked for without a pause,"""
NAP_FIRST, NAP_MOST = 50e-6, 1e-3
"""and the pauses from then on."""


def complete(request: Any, watch: Watch, *, eager: bool = False) -> None:
    """Wait for a non-blocking operation; if eager, without pauses, for large data."""
    began, nap = time.monotonic(), NAP_FIRST
    while not request.Test():
        watch()
        if eager or time.monotonic() - began < SPIN:
            os.sched_yield()
        else:
            time.sleep(nap)
            nap = min(2 * nap, NAP_MOST)


def call(function: Callable[[], T], watch: Watch) -> T:
    """Make a call that only exists in a blocking form; if it hangs, its thread is abandoned."""
    outcome: list[tuple[T | None, BaseException | None]] = []
    done = threading.Event()

    def run() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))
        done.set()

    threading.Thread(target=run, daemon=True, name="mpi").start()
    try:
        while not done.wait(0.005):
            watch()
    except BaseException:
        library().stuck = True
        raise
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # None only if T is None
