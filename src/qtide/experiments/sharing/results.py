"""Results: the measured points in files, and statistics over all repetitions."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from qtide.core.files import write_whole
from qtide.experiments.sharing.replica import ReplicaRecord
from qtide.experiments.sharing.sharing_plan import ClosedLoop, Point, SharingPlan


@dataclass(frozen=True)
class Measured:
    """The measured jobs of one point."""

    point: Point
    jobs: tuple[ReplicaRecord, ...]

    @property
    def total(self) -> float:
        """Seconds from the start of the first job to the end of the last."""
        return max(job.end for job in self.jobs) - min(job.start for job in self.jobs)

    @property
    def quantum(self) -> float:
        """Seconds that the device was busy."""
        return sum(job.quantum for job in self.jobs)

    @property
    def occupancy(self) -> float:
        """Share of the total time in which the device was busy."""
        return self.quantum / self.total

    @property
    def queue(self) -> float:
        """Mean seconds that a job waited for the device."""
        return fmean(job.queue for job in self.jobs)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the repetitions."""

    mean: float
    sd: float
    values: tuple[float, ...] = ()

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Compute the spread of one or more values."""
        known = tuple(values)
        return Spread(fmean(known), pstdev(known), known)


@dataclass(frozen=True)
class ResultRow:
    """All repetitions with one alpha and one number of replicas, and the prediction for them."""

    alpha: float
    replicas: int
    repetitions: int
    occupancy: Spread
    total: Spread
    quantum: Spread
    queue: Spread
    runtimes: tuple[float, ...]
    single: float
    """Seconds that one job takes with the device to itself."""
    loop: ClosedLoop

    @property
    def exclusive(self) -> float:
        """Seconds if the jobs ran one after another, each with the device to itself."""
        return self.replicas * self.single

    @property
    def gain(self) -> float:
        """Speed-up over exclusive use."""
        return self.exclusive / self.total.mean

    def as_dict(self) -> dict[str, Any]:
        """Return the row in a form that JSON can represent."""
        spreads = {
            name: {"mean": each.mean, "sd": each.sd}
            for name in ("occupancy", "total", "quantum", "queue")
            for each in [getattr(self, name)]
        }
        n = self.replicas
        expected = {
            "occupancy": self.loop.occupancy(n),
            "total": self.loop.total(n),
            "queue": self.loop.queue(n),
            "knee": self.loop.knee,
        }
        words = {"alpha": self.alpha, "replicas": n, "repetitions": self.repetitions}
        gain = {"exclusive": self.exclusive, "gain": self.gain}
        return words | spreads | gain | {"expected": expected, "runtimes": list(self.runtimes)}


def keep(folder: Path, measured: Measured) -> None:
    """Write the jobs of a point to its file, which marks the point as done."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [job.as_dict() for job in measured.jobs]
    write_whole(folder / f"{measured.point.name}.json", json.dumps(jobs, indent=1).encode())


def kept(folder: Path, point: Point) -> Measured | None:
    """Read the jobs of a point; None if it is not done."""
    file = folder / f"{point.name}.json"
    if not file.exists():
        return None
    return Measured(point, tuple(ReplicaRecord(**job) for job in json.loads(file.read_text())))


def rows(plan: SharingPlan, measured: list[Measured]) -> list[ResultRow]:
    """Compute the rows of each alpha for which the reference, a single replica, is measured."""
    found = []
    for alpha in plan.alphas:
        mine = [each for each in measured if each.point.alpha == alpha]
        alone = [each for each in mine if each.point.replicas == 1]
        if not alone:
            continue
        loop, single = _loop(alone), median(each.total for each in alone)
        for number in sorted({each.point.replicas for each in mine}):
            those = [each for each in mine if each.point.replicas == number]
            found.append(_row(alpha, number, those, single, loop))
    return found


def _loop(alone: list[Measured]) -> ClosedLoop:
    """Derive the cycle from jobs that ran alone: all time that is not quantum is classical.

    Medians, as one moment in which the computer was busy would otherwise count in every gain.
    """
    jobs = [job for each in alone for job in each.jobs]
    cycles = fmean(job.tasks for job in jobs)
    quantum = median(job.quantum for job in jobs) / cycles
    return ClosedLoop(cycles, quantum, median(job.runtime for job in jobs) / cycles - quantum)


def _row(
    alpha: float, number: int, those: list[Measured], single: float, loop: ClosedLoop
) -> ResultRow:
    spreads = {
        name: Spread.of(getattr(each, name) for each in those)
        for name in ("occupancy", "total", "quantum", "queue")
    }
    runtimes = tuple(job.runtime for each in those for job in each.jobs)
    return ResultRow(
        alpha, number, len(those), runtimes=runtimes, single=single, loop=loop, **spreads
    )
