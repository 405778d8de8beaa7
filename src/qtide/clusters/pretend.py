"""Pretended work: a task that stands for one of a known length, in every world."""

from __future__ import annotations

import os
import time

SCALE = "QTIDE_TIME_SCALE"
"""Set for agents: how long a second of the run's clock takes."""

_meters: list[list[float]] = []


def pretend(seconds: float) -> None:
    """Let `seconds` of the run's clock pass, as if the task had worked for so long."""
    if _meters:
        _meters[-1].append(seconds)
    else:
        time.sleep(seconds * float(os.environ.get(SCALE, "1")))


class metered:  # noqa: N801 - a context manager; a generator would take twice as long
    """Within, pretended work takes no time, but is noted in the list."""

    def __enter__(self) -> list[float]:
        _meters.append([])
        return _meters[-1]

    def __exit__(self, *_: object) -> None:
        _meters.pop()
