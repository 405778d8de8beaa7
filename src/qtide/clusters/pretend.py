"""Pretended work: a task that stands for one of a known length, in every world."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

SCALE = "QTIDE_TIME_SCALE"
"""Set for agents: how long a second of the run's clock takes."""

_meters: list[list[float]] = []


def pretend(seconds: float) -> None:
    """Let `seconds` of the run's clock pass, as if the task had worked for so long."""
    if _meters:
        _meters[-1].append(seconds)
    else:
        time.sleep(seconds * float(os.environ.get(SCALE, "1")))


@contextmanager
def metered() -> Iterator[list[float]]:
    """Within, pretended work takes no time, but is noted in the list."""
    _meters.append([])
    try:
        yield _meters[-1]
    finally:
        _meters.pop()
