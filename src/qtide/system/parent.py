"""Ending with the parent: a process that works for another one must not outlive it."""

from __future__ import annotations

import signal


def die_with_parent() -> None:
    """Let Linux kill us when the parent dies, even while a task holds Python's lock."""
    import ctypes

    PR_SET_PDEATHSIG = 1  # noqa: N806 - the kernel's own name
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
