"""Pretended work: lets a task stand for one of known duration, in real and in virtual time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

SCALE = "QTIDE_TIME_SCALE"
"""Environment variable for agents: real seconds per second of the run's clock."""

_meters: list[list[float]] = []


def pretend(seconds: float) -> None:
    """Let `seconds` of the run's clock pass, as if the task had worked that long."""
    if _meters:
        _meters[-1].append(seconds)
    else:
        time.sleep(seconds * float(os.environ.get(SCALE, "1")))


class metered:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within this context, pretended work takes no time; its seconds are added to a list."""

    def __enter__(self) -> list[float]:
        _meters.append([])
        return _meters[-1]

    def __exit__(self, *_: object) -> None:
        _meters.pop()


def rehearse(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    rank: int = 0,
    size: int = 1,
) -> None:
    """Call a function in advance, ignoring errors: the real call reports them."""
    with suppress(Exception):
        function(*args, **kwargs)


def load(function: Callable[..., Any], rank: int = 0, size: int = 1) -> None:
    """Do nothing: passing the function has already imported its module."""
