"""Ending with the parent: a process that works for another one must not outlive it."""

from __future__ import annotations

import signal


def die_with_parent() -> None:
    """Let Linux kill us when the parent dies, even while a task holds Python's lock."""
    _at_parents_death(signal.SIGKILL)


def wake_at_parents_death() -> None:
    """Let Linux continue us, should we be stopped, when the parent dies.

    For a process that notices that by itself, at the end of a pipe, and has to clean up. Linux
    counts the parent's thread as the parent: if only that ends, nothing happens.
    """
    _at_parents_death(signal.SIGCONT)


def _at_parents_death(number: signal.Signals) -> None:
    import ctypes

    PR_SET_PDEATHSIG = 1  # noqa: N806 - the kernel's own name
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
