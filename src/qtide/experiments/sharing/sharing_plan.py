"""The plan of a sharing experiment: its points, ordered so that a partial run is useful too."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from qtide.apps.colouring.steps import STEPS
from qtide.backends.devices.profile import profile
from qtide.core.errors import UsageError
from qtide.core.files import write_whole

MOST_REPLICAS = 64


class Point(NamedTuple):
    """One repetition with `replicas` replicas; classical phases last `alpha` times quantum ones."""

    alpha: float
    replicas: int
    repetition: int

    @property
    def name(self) -> str:
        """File name of the point, without its extension."""
        return f"alpha-{self.alpha:g}-replicas-{self.replicas}-{self.repetition}"

    @property
    def weight(self) -> float:
        """Rough duration, in units of one job's quantum time."""
        return max(self.replicas, 1 + self.alpha) + 0.5


@dataclass(frozen=True)
class SharingPlan:
    """The whole experiment; with the defaults it takes about three hours."""

    replicas: tuple[int, ...] = tuple(range(1, 17))
    alphas: tuple[float, ...] = (0.0, 2.0, 8.0)
    repetitions: int = 10
    sets: str = "sharing-circuits"
    """Name of the job's quantum step, which finds the independent sets of its graph."""
    clustered: tuple[int, int, int] = (1, 4, 8)
    """The clustered graph (K, d, n) that all replicas colour."""
    shots: int = 150
    device: str = "star"
    profile: str = "annealer"
    cluster: str = "local"
    seed: int = 0
    references: int = 1
    """How often one replica is measured at least: its median decides every gain."""

    def __post_init__(self) -> None:
        profile(self.profile)
        if not self.replicas or not all(1 <= each <= MOST_REPLICAS for each in self.replicas):
            raise UsageError(f"--replicas has numbers from 1 to {MOST_REPLICAS}, as in 1,2,4,8")
        if not self.alphas or not all(0 <= each <= 1000 for each in self.alphas):
            raise UsageError("--alphas has numbers from 0 to 1000, as in 0,2,8")
        if self.repetitions < 1 or self.shots < 1:
            raise UsageError("--repetitions and --shots have to be at least 1")
        if self.sets not in STEPS.names():
            STEPS.load(self.sets)
        if self.cluster not in ("local", "slurm"):
            raise UsageError(f"--cluster is local or slurm, not {self.cluster!r}")

    def points(self) -> list[Point]:
        """All points, one repetition after another; always includes one replica, the reference.

        Points to be compared follow each other, so that what slows the computer slows all of them.
        """
        numbers = sorted({1, *self.replicas})
        return [
            Point(alpha, number, repetition)
            for repetition in range(1, max(self.repetitions, self.references) + 1)
            for number in (numbers if repetition <= self.repetitions else [1])
            for alpha in self.alphas
        ]

    def keep(self, folder: Path) -> None:
        """Write the plan to the experiment's folder; refuse a folder that holds another plan."""
        file = folder / "plan.json"
        told: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(file, (json.dumps(told, indent=2) + "\n").encode())
            return
        kept = json.loads(file.read_text())
        same = {each.name: kept.get(each.name, each.default) for each in fields(self)}
        differ = [name for name, value in same.items() if value != told[name]]
        if differ:
            raise UsageError(
                f"{folder} has an experiment with other options ({', '.join(differ)});"
                " repeat these to continue it, or choose another --name"
            )


def read_plan(folder: Path) -> SharingPlan:
    """Read the plan kept in a folder."""
    kept: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    for key, value in kept.items():
        if isinstance(value, list):
            kept[key] = tuple(value)
    return SharingPlan(**kept)


@dataclass(frozen=True)
class ClosedLoop:
    """Closed-loop model of jobs that alternate quantum bursts and classical phases."""

    cycles: float
    quantum: float
    """Seconds per burst."""
    classical: float
    """Seconds between two bursts."""

    @property
    def knee(self) -> float:
        """Number of jobs the device serves without a queue; also the greatest gain of sharing."""
        return 1 + self.classical / self.quantum

    def total(self, jobs: int) -> float:
        """Seconds until all jobs have ended."""
        busy = self.cycles * self.quantum
        if jobs <= self.knee:
            return (jobs - 1) * self.quantum + busy + self.cycles * self.classical
        return jobs * busy + self.classical

    def occupancy(self, jobs: int) -> float:
        """Share of the total time in which the device is busy."""
        return jobs * self.cycles * self.quantum / self.total(jobs)

    def queue(self, jobs: int) -> float:
        """Mean seconds that a job waits for the device over all its cycles."""
        first = (jobs - 1) * self.quantum / 2
        return first + max(0.0, (self.cycles - 1) * (jobs - self.knee) * self.quantum)
