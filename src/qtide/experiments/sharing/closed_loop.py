"""What sharing should give: N jobs in a closed loop around one device, first come first served.

Each job repeats K cycles: a burst of q seconds on the device, then c seconds of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClosedLoop:
    """The cycles of one job."""

    cycles: float
    quantum: float
    """Seconds of a burst."""
    classical: float
    """Seconds between two bursts."""

    @property
    def knee(self) -> float:
        """The jobs that the device can serve without a queue; also the most that sharing gains."""
        return 1 + self.classical / self.quantum

    def total(self, jobs: int) -> float:
        """Seconds until all jobs have ended."""
        busy = self.cycles * self.quantum
        if jobs <= self.knee:
            return (jobs - 1) * self.quantum + busy + self.cycles * self.classical
        return jobs * busy + self.classical

    def occupancy(self, jobs: int) -> float:
        """The share of that time in which the device works."""
        return jobs * self.cycles * self.quantum / self.total(jobs)

    def queue(self, jobs: int) -> float:
        """Seconds that a job waits for the device, in all its cycles, on average."""
        first = (jobs - 1) * self.quantum / 2
        return first + max(0.0, (self.cycles - 1) * (jobs - self.knee) * self.quantum)
