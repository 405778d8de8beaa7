"""One thread for libraries with their own thread pools: equal seeds then give equal clusters."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import cast

from threadpoolctl import threadpool_limits


def one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS and OpenMP pools have one thread."""
    return cast("AbstractContextManager[object]", threadpool_limits(1))
