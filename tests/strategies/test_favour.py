"""--time-weight: a higher one costs no time, a lower one costs no node-seconds.

On average over seeds, that is: a seed decides when strangers come, how long grants take and how
long nodes take to start. The seeds are paired: every favour meets the same ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import pytest

from qtide import classical, pretend, quantum, task
from qtide.backends.clusters.simulated import Delays
from qtide.backends.payloads.payload import Burst
from qtide.core.metrics import Metrics
from tests.crowd import Crowd

FAVOURS = (0.0, 0.25, 0.5, 0.75, 1.0)
SEEDS = range(16)
LEAST = 0.01
"""What is less than this share of the whole, or two standard errors of paired seeds, is chance."""


@dataclass(frozen=True)
class Workload:
    """Rounds of two unequal tasks, a payload, and a third task, of so many jobs at once."""

    load: float
    jobs: int
    quantum: float
    classical: float

    async def program(self) -> None:
        for _ in range(4):
            await classical(task(pretend, self.classical), task(pretend, self.classical / 8))
            await quantum(Burst(self.quantum))
            await task(pretend, self.classical / 2)

    def metrics(self, favour: float, seed: int) -> Metrics:
        chance = random.Random(seed)
        delays = Delays(grant=chance.uniform(0, 8), start=chance.uniform(0, 4))
        crowd = Crowd(6, self.load, delays, self.jobs)
        return crowd.metrics("elastic", self.program, seed, time_weight=favour)


WORKLOADS = [
    Workload(load=0.0, jobs=4, quantum=5, classical=2),
    Workload(load=0.6, jobs=1, quantum=60, classical=20),
    Workload(load=0.8, jobs=3, quantum=5, classical=20),
    Workload(load=0.9, jobs=1, quantum=15, classical=40),
    Workload(load=0.9, jobs=8, quantum=0, classical=20),
]


def growth(before: list[float], after: list[float]) -> float:
    """By which share the mean grew, beyond what may be chance; 0 or less if it did not."""
    differences = [new - old for old, new in zip(before, after, strict=True)]
    error: float = stdev(differences) / len(differences) ** 0.5
    return (fmean(differences) - max(2 * error, LEAST * fmean(before))) / fmean(before)


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_favour_is_monotone(workload: Workload) -> None:
    found: dict[float, list[Any]] = {
        favour: [workload.metrics(favour, seed) for seed in SEEDS] for favour in FAVOURS
    }
    walls = {favour: [each.mean_wall for each in found[favour]] for favour in FAVOURS}
    nodes = {favour: [each.nodes_held for each in found[favour]] for favour in FAVOURS}
    slower = {pair: growth(walls[pair[0]], walls[pair[1]]) for pair in pairwise(FAVOURS)}
    dearer = {pair: growth(nodes[pair[0]], nodes[pair[1]]) for pair in pairwise(FAVOURS[::-1])}
    assert {pair: share for pair, share in slower.items() if share > 0} == {}
    assert {pair: share for pair, share in dearer.items() if share > 0} == {}
