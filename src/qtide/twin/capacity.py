"""Capacity of QPUs: how many virtual QPUs to offer, and when one QPU is no longer enough.

Jobs that share a QPU are a closed loop: each works classically, then submits a payload. The loop
is played through the vQPU service itself; mean-value analysis, exact for exponential times, says
where to begin. The growth of a demand follows Erlang's delay formula.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log
from random import Random

from qtide.backends.models.site_model import SiteModel
from qtide.core.ledger import Interval
from qtide.twin.replications import MeanEstimate
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

MOST = 1000
"""The most virtual QPUs that are tried."""
AROUND = 2
"""How many numbers above and below the best one are shown."""


@dataclass(frozen=True)
class Loop:
    """Mean seconds of a payload, and of the classical work between two payloads of a job."""

    quantum: float
    classical: float


@dataclass(frozen=True)
class SharingEstimate:
    """What `jobs` jobs that share a QPU expect, as simulated through the service."""

    jobs: int
    wait: MeanEstimate
    """Mean seconds that a payload waits."""
    usual: MeanEstimate
    """Seconds that 95 % of the payloads wait at most."""
    occupancy: MeanEstimate


def best_offer(
    loop: Loop, model: SiteModel, longest: float, tell: Callable[[int], object] = lambda _: None
) -> tuple[int, list[SharingEstimate]]:
    """The most virtual QPUs whose payloads wait `longest` on average; estimates around it."""
    known: dict[int, SharingEstimate] = {}

    def fits(jobs: int) -> bool:
        if jobs not in known:
            tell(jobs)
            known[jobs] = simulate_sharing(loop, model, jobs)
        return known[jobs].wait.mean <= longest

    if model.qpu.spread == "fixed":
        start = min(MOST, max(1, int((longest + loop.quantum + loop.classical) / loop.quantum)))
    else:
        start = offer_by_formula(loop.quantum, loop.classical, longest).jobs
    best = start
    while best > 1 and not fits(best):
        best -= 1
    while best < MOST and fits(best + 1):
        best += 1
    for jobs in range(max(1, best - AROUND), best + AROUND + 1):
        fits(jobs)
    return best, [known[jobs] for jobs in sorted(known)]


REPLICATIONS = 4


def simulate_sharing(loop: Loop, model: SiteModel, jobs: int) -> SharingEstimate:
    """Play `jobs` jobs on the QPU and the service of the site, with nodes for all of them."""
    site = replace(
        SiteModel(nodes=jobs),
        qpu=replace(model.qpu, number=1, licences=None),
        service=model.service,
    )
    times = 1 if site.qpu.spread == "fixed" else REPLICATIONS
    found = [_replicate(loop, site, jobs, seed) for seed in range(times)]
    waits, usual, occupancies = (MeanEstimate.of(each) for each in zip(*found, strict=True))
    return SharingEstimate(jobs, waits, usual, occupancies)


SETTLING = 0.1
"""Share of the time that is left out: all jobs begin in step, but do not stay so."""
USUAL = 0.95
"""Share of the payloads that wait no longer than the usual longest wait."""


def _replicate(loop: Loop, site: SiteModel, jobs: int, seed: int) -> tuple[float, float, float]:
    """The mean wait, the usual longest wait and the occupancy, while all jobs are running."""
    ledgers: list[list[Interval]] = []
    simulation = Simulation(
        site, StrategySetup("workflow", jobs), lambda _, spans: ledgers.append(spans)
    )
    simulation.run(_loop_jobs(loop, jobs, seed, random=site.qpu.spread != "fixed"))
    end = min(max(span.end for span in spans) for spans in ledgers)
    begin = SETTLING * end
    on_qpu = [span for spans in ledgers for span in spans if span.lane.startswith("qpu")]
    busy = [span for span in on_qpu if span.what == "busy"]
    payloads = sum(begin <= span.start < end for span in busy)
    waits = [s.seconds for s in on_qpu if s.what == "wait" and begin <= s.end < end]
    waits = sorted([0.0] * (payloads - len(waits)) + waits)
    occupied = sum(max(0.0, min(s.end, end) - max(s.start, begin)) for s in busy)
    usual = waits[int(USUAL * (len(waits) - 1))] if waits else 0.0
    return sum(waits) / max(1, len(waits)), usual, occupied / (end - begin)


PAYLOADS = 240
"""Payloads of a replication, of all jobs together."""


def _loop_jobs(loop: Loop, number: int, seed: int, *, random: bool) -> list[HybridJob]:
    """Jobs of a loop; with random times, their classical work is exponential."""
    chance, rounds = Random(seed), max(8, PAYLOADS // number)
    apart = 0.0 if random else (loop.quantum + loop.classical) / number
    jobs = []
    for place in range(number):
        steps: list[HybridStep] = []
        for _ in range(rounds):
            work = loop.classical
            if random and work:
                work = chance.expovariate(1 / work)
            steps += [HybridStep((work,)), HybridStep(quantum=loop.quantum)]
        jobs.append(HybridJob(tuple(steps), apart * place, seed=seed * MOST + place, user=place))
    return jobs


@dataclass(frozen=True)
class SharingFormula:
    """What `jobs` jobs that share a QPU expect, by mean-value analysis."""

    jobs: int
    wait: float
    """Mean seconds that a payload waits."""
    occupancy: float


def mean_value_analysis(quantum: float, classical: float, most: int) -> list[SharingFormula]:
    """What 1 to `most` jobs expect, if the times of payloads and of the work are exponential.

    With constant times, nobody waits up to 1 + classical / quantum jobs.
    """
    found, queue = [], 0.0
    for jobs in range(1, most + 1):
        response = quantum * (1 + queue)
        throughput = jobs / (response + classical)
        queue = throughput * response
        found.append(SharingFormula(jobs, response - quantum, throughput * quantum))
    return found


def offer_by_formula(quantum: float, classical: float, longest: float) -> SharingFormula:
    """The most jobs whose payloads wait `longest` on average, if all times are exponential."""
    fitting = (e for e in mean_value_analysis(quantum, classical, MOST) if e.wait <= longest)
    return max(fitting, key=lambda each: each.jobs)


FULL = 0.85
"""The occupancy from which on waits grow out of hand."""


@dataclass(frozen=True)
class GrowthPlan:
    """What a number of QPUs make of a site's demand."""

    qpus: int
    occupancy: float
    wait: float
    """Mean seconds that a payload waits, if payloads arrive at random; infinite if overloaded."""
    full_in: float
    """Years until the QPUs are as good as full."""


def growth(payloads_per_day: float, quantum: float, yearly: float, qpus: int) -> GrowthPlan:
    """What `qpus` QPUs make of a demand that grows by the share `yearly` every year."""
    offered = payloads_per_day * quantum / 86_400
    occupancy = offered / qpus
    if occupancy >= FULL:
        years = 0.0
    else:
        years = log(FULL / occupancy) / log(1 + yearly) if yearly > 0 and occupancy else inf
    return GrowthPlan(qpus, min(1.0, occupancy), _erlang(offered, qpus, quantum), years)


def _erlang(offered: float, servers: int, seconds: float) -> float:
    """The mean wait by Erlang's delay formula."""
    if offered >= servers:
        return inf
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    delayed = servers * blocked / (servers - offered * (1 - blocked))
    return delayed * seconds / (servers - offered)
