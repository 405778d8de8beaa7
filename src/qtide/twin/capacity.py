"""How many virtual QPUs to offer, and when one QPU is no longer enough: closed formulas.

Jobs that share a QPU are a closed loop: each works classically, then wants the QPU. With random
times, mean-value analysis gives the exact waits of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log

MOST = 1000
"""The most virtual QPUs that are looked at."""
FULL = 0.85
"""The occupancy from which on waits grow out of hand."""


@dataclass(frozen=True)
class Sharing:
    """So many jobs that share a QPU."""

    jobs: int
    wait: float
    """Seconds in the queue per payload, on average."""
    occupancy: float


def sharing(quantum: float, classical: float, most: int) -> list[Sharing]:
    """What 1 to `most` jobs expect whose payloads take `quantum`, and the work between `classical`.

    Times are exponential; with constant ones, there is no wait up to 1 + classical / quantum jobs.
    """
    found, queue = [], 0.0
    for jobs in range(1, most + 1):
        response = quantum * (1 + queue)
        throughput = jobs / (response + classical)
        queue = throughput * response
        found.append(Sharing(jobs, response - quantum, throughput * quantum))
    return found


def offer(quantum: float, classical: float, longest: float) -> Sharing:
    """The most virtual QPUs with which payloads wait no longer than that, on average."""
    fitting = [each for each in sharing(quantum, classical, MOST) if each.wait <= longest]
    return fitting[-1]


@dataclass(frozen=True)
class Growth:
    """A site's demand for its QPUs."""

    qpus: int
    occupancy: float
    wait: float
    """Seconds in the queue per payload, if they come at random; infinite if they are too many."""
    full_in: float
    """Years until the QPUs are as good as full."""


def growth(payloads_per_day: float, quantum: float, yearly: float, qpus: int) -> Growth:
    """What so many QPUs make of a demand that grows by the share `yearly` every year."""
    offered = payloads_per_day * quantum / 86_400
    occupancy = offered / qpus
    if occupancy >= FULL:
        years = 0.0
    else:
        years = log(FULL / occupancy) / log(1 + yearly) if yearly > 0 and occupancy else inf
    return Growth(qpus, min(1.0, occupancy), _erlang(offered, qpus, quantum), years)


def _erlang(offered: float, servers: int, seconds: float) -> float:
    """The mean wait of Erlang's delay formula."""
    if offered >= servers:
        return inf
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    delayed = servers * blocked / (servers - offered * (1 - blocked))
    return delayed * seconds / (servers - offered)
