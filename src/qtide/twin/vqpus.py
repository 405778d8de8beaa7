"""How many virtual QPUs to offer, and when one QPU is no longer enough: closed formulas.

Jobs that share a QPU are a closed loop: each works classically, then wants the QPU. With random
times, mean-value analysis gives the exact waits of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log
from random import Random

from qtide.backends.models.site_model import SiteModel
from qtide.core.ledger import Interval
from qtide.twin.play import HybridJob, HybridStep, Simulation, StrategyOptions
from qtide.twin.simulate import MeanEstimate

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
class GrowthPlan:
    """A site's demand for its QPUs."""

    qpus: int
    occupancy: float
    wait: float
    """Seconds in the queue per payload, if they come at random; infinite if they are too many."""
    full_in: float
    """Years until the QPUs are as good as full."""


def growth(payloads_per_day: float, quantum: float, yearly: float, qpus: int) -> GrowthPlan:
    """What so many QPUs make of a demand that grows by the share `yearly` every year."""
    offered = payloads_per_day * quantum / 86_400
    occupancy = offered / qpus
    if occupancy >= FULL:
        years = 0.0
    else:
        years = log(FULL / occupancy) / log(1 + yearly) if yearly > 0 and occupancy else inf
    return GrowthPlan(qpus, min(1.0, occupancy), _erlang(offered, qpus, quantum), years)


def _erlang(offered: float, servers: int, seconds: float) -> float:
    """The mean wait of Erlang's delay formula."""
    if offered >= servers:
        return inf
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    delayed = servers * blocked / (servers - offered * (1 - blocked))
    return delayed * seconds / (servers - offered)


PAYLOADS = 240
"""Payloads of a replication, of all jobs together."""
REPLICATIONS = 4
AROUND = 2
"""How many numbers above and below the best one are shown."""
SETTLING = 0.1
"""The share of the time that is left out: the jobs begin in step, which they do not stay."""
USUAL = 0.95
"""The share of the payloads that wait no longer than the usual longest wait."""


@dataclass(frozen=True)
class Loop:
    """What a job does between two payloads, and how long a payload takes: seconds, on average."""

    quantum: float
    classical: float

    def jobs(self, number: int, seed: int, *, random: bool) -> list[HybridJob]:
        """So many of them; with random times, the work between payloads is exponential."""
        chance, rounds = Random(seed), max(8, PAYLOADS // number)
        apart = 0.0 if random else (self.quantum + self.classical) / number

        def between() -> float:
            return chance.expovariate(1 / self.classical) if random else self.classical

        jobs = []
        for place in range(number):
            works = [between() if self.classical else 0.0 for _ in range(rounds)]
            steps = [
                step
                for work in works
                for step in (HybridStep((work,)), HybridStep(quantum=self.quantum))
            ]
            jobs.append(
                HybridJob(tuple(steps), apart * place, seed=seed * MOST + place, user=place)
            )
        return jobs


@dataclass(frozen=True)
class Shared:
    """So many jobs that share a QPU, as the service serves them."""

    jobs: int
    wait: MeanEstimate
    """Seconds in the queue per payload, on average,"""
    usual: MeanEstimate
    """and what 95 % of them wait at most."""
    occupancy: MeanEstimate


def shared(loop: Loop, model: SiteModel, jobs: int) -> Shared:
    """Play so many jobs; the QPU and the service are those of the site, with nodes for all."""
    site = replace(
        SiteModel(nodes=jobs),
        qpu=replace(model.qpu, number=1, licences=None),
        service=model.service,
    )
    times = 1 if site.qpu.spread == "fixed" else REPLICATIONS
    found = [_played(loop, site, jobs, seed) for seed in range(times)]
    waits, usual, occupancies = zip(*found, strict=True)
    return Shared(
        jobs, MeanEstimate.of(waits), MeanEstimate.of(usual), MeanEstimate.of(occupancies)
    )


def offered(
    loop: Loop, model: SiteModel, longest: float, tell: Callable[[int], object] = lambda _: None
) -> tuple[int, list[Shared]]:
    """The most virtual QPUs with which payloads wait no longer than that on average; and others."""
    known: dict[int, Shared] = {}

    def fits(jobs: int) -> bool:
        if jobs not in known:
            tell(jobs)
            known[jobs] = shared(loop, model, jobs)
        return known[jobs].wait.mean <= longest

    best = _guess(loop, model, longest)
    while best > 1 and not fits(best):
        best -= 1
    while best < MOST and fits(best + 1):
        best += 1
    for jobs in range(max(1, best - AROUND), best + AROUND + 1):
        fits(jobs)
    return best, [known[jobs] for jobs in sorted(known)]


def _guess(loop: Loop, model: SiteModel, longest: float) -> int:
    """By the formulas of the closed loop, with random times and with constant ones."""
    if model.qpu.spread != "fixed":
        return offer(loop.quantum, loop.classical, longest).jobs
    return min(MOST, max(1, int((longest + loop.quantum + loop.classical) / loop.quantum)))


def _played(loop: Loop, site: SiteModel, jobs: int, seed: int) -> tuple[float, float, float]:
    """The mean wait, the usual longest one, and the occupancy, while all jobs are in full swing."""
    ledgers: list[list[Interval]] = []
    random = site.qpu.spread != "fixed"
    stage = Simulation(
        site, StrategyOptions("workflow", jobs), lambda _, spans: ledgers.append(spans)
    )
    stage.play(loop.jobs(jobs, seed, random=random))
    end = min(max(span.end for span in spans) for spans in ledgers)
    begin = SETTLING * end
    on_qpu = [span for spans in ledgers for span in spans if span.lane.startswith("qpu")]
    busy = [span for span in on_qpu if span.what == "busy"]
    seen = sum(begin <= span.start < end for span in busy)
    waits = [s.seconds for s in on_qpu if s.what == "wait" and begin <= s.end < end]
    waits = sorted([0.0] * (seen - len(waits)) + waits)
    occupied = sum(max(0.0, min(s.end, end) - max(s.start, begin)) for s in busy)
    usual = waits[int(USUAL * (len(waits) - 1))] if waits else 0.0
    return sum(waits) / max(1, len(waits)), usual, occupied / (end - begin)
