"""Run the experiment: measure the missing points, then write the figures and the page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qtide.core.files import write_whole
from qtide.experiments.machine import described
from qtide.experiments.sharing.jobs import jobs_of
from qtide.experiments.sharing.results import Measured, ResultRow, keep, kept, rows
from qtide.experiments.sharing.sharing_plan import Point, SharingPlan


@dataclass(frozen=True)
class Measuring:
    """Progress: the point to be measured next, and how long the rest should take."""

    point: Point
    number: int
    of: int
    left: float | None
    """Estimated seconds; None until a point has been measured."""


Tell = Callable[[Measuring], None]


def measure(plan: SharingPlan, folder: Path, tell: Tell = lambda _: None) -> list[ResultRow]:
    """Measure every point that the folder lacks; return the rows of all points."""
    plan.keep(folder)
    points, place = plan.points(), folder / "points"
    missing = [point for point in points if kept(place, point) is None]
    if missing:
        with jobs_of(plan) as jobs:
            clock = _Clock(missing)
            for number, point in enumerate(missing, len(points) - len(missing) + 1):
                tell(Measuring(point, number, len(points), clock.left()))
                keep(place, Measured(point, tuple(jobs.run(point))))
                clock.done(point)
    return rows(plan, [each for point in points if (each := kept(place, point)) is not None])


def write(plan: SharingPlan, folder: Path, found: list[ResultRow]) -> dict[str, Any]:
    """Write results.json, the figures and the page; return the content of results.json."""
    from qtide.experiments.sharing.figures import draw, write_page

    figures = draw(folder, found)
    page = write_page(folder, plan, found, figures)
    results = {
        "folder": str(folder),
        "page": str(page),
        "made": described(),
        "rows": [row.as_dict() for row in found],
    }
    write_whole(folder / "results.json", (json.dumps(results, indent=1) + "\n").encode())
    return results


class _Clock:
    """Estimates the remaining time from the time and the weight of the points done so far."""

    def __init__(self, missing: list[Point]) -> None:
        self._weight = sum(point.weight for point in missing)
        self._done = 0.0
        self._began = time.monotonic()

    def done(self, point: Point) -> None:
        """Record that a point is done."""
        self._done += point.weight

    def left(self) -> float | None:
        """Estimated seconds left; None until a point is done."""
        if not self._done:
            return None
        return (time.monotonic() - self._began) * (self._weight / self._done - 1)
