"""Capacity of QPUs: how many virtual QPUs to offer, and when one QPU is no longer enough.

Jobs that share a QPU form a closed loop: each works classically, then submits a payload. The loop
is simulated through the vQPU service itself; mean-value analysis, exact for exponential times,
gives the starting point. Waits under a growing demand follow Erlang's delay formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isinf, log, sqrt
from random import Random

from qtide.backends.models.site_model import SiteModel
from qtide.core.ledger import Interval
from qtide.twin.replications import MeanEstimate, simulate
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

MOST = 1000
"""Maximum number of virtual QPUs to try."""
AROUND = 2
"""Number of estimates to show on each side of the best one."""


@dataclass(frozen=True)
class Loop:
    """Mean seconds of a payload, and of a job's classical work between two payloads."""

    quantum: float
    classical: float


@dataclass(frozen=True)
class SharingEstimate:
    """Expectation for `jobs` jobs that share a QPU, simulated through the service."""

    jobs: int
    wait: MeanEstimate
    """Mean wait of a payload in seconds."""
    usual: MeanEstimate
    """95th percentile of the payloads' waits in seconds."""
    occupancy: MeanEstimate


SAME = 0.01
"""Relative improvement that justifies offering more virtual QPUs."""


def best_offer(
    loop: Loop,
    model: SiteModel,
    longest: float,
    tell: Callable[[int], object] = lambda _: None,
    *,
    p95: bool = False,
) -> tuple[int, list[SharingEstimate]]:
    """Find the fewest virtual QPUs that keep the QPU as busy as any number within `longest`.

    More would only lengthen the queue. `longest` limits the mean wait or, with `p95`, the 95th
    percentile. Also return the estimates around the best number.
    """
    known: dict[int, SharingEstimate] = {}

    def estimate(jobs: int) -> SharingEstimate:
        if jobs not in known:
            tell(jobs)
            known[jobs] = simulate_sharing(loop, model, jobs)
        return known[jobs]

    def fits(jobs: int) -> bool:
        """Whether the wait is within the limit, even at the upper end of its interval."""
        found = estimate(jobs)
        return (found.usual if p95 else found.wait).high <= longest

    if model.qpu.spread == "fixed":
        most = min(MOST, max(1, int((longest + loop.quantum + loop.classical) / loop.quantum)))
    else:
        most = offer_by_formula(loop.quantum, loop.classical, longest).jobs
    while most > 1 and not fits(most):
        most -= 1
    while most < MOST and fits(most + 1):
        most += 1
    best, busiest = most, estimate(most).occupancy.mean
    while best > 1 and estimate(best - 1).occupancy.mean >= (1 - SAME) * busiest:
        best -= 1
    around = range(max(1, best - AROUND), best + AROUND + 1)
    return best, [estimate(jobs) for jobs in around]


REPLICATIONS = 6


def simulate_sharing(loop: Loop, model: SiteModel, jobs: int) -> SharingEstimate:
    """Simulate `jobs` jobs on the site's QPU and service, with enough nodes for all of them."""
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
"""Initial share of the time to ignore: jobs begin in step, then drift apart."""
USUAL = 0.95
"""Percentile reported as the usual longest wait."""


def _replicate(loop: Loop, site: SiteModel, jobs: int, seed: int) -> tuple[float, float, float]:
    """Return the mean wait, the usual longest wait and the occupancy while all jobs run."""
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
"""Payloads per replication, over all jobs."""


def _loop_jobs(loop: Loop, number: int, seed: int, *, random: bool) -> list[HybridJob]:
    """Build the loop's jobs; with `random`, their classical work is exponential."""
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


MOST_AT_SITE = 64
"""Maximum number of virtual QPUs per QPU to try on a site."""


@dataclass(frozen=True)
class SiteEstimate:
    """Expectation for a site's own workload with a number of virtual QPUs per QPU."""

    vqpus: int
    wait: MeanEstimate
    """Mean seconds per payload that a job waits for the QPU or a virtual QPU."""
    usual: MeanEstimate
    """95th percentile of these waits."""
    turnaround: MeanEstimate
    occupancy: MeanEstimate


def best_offer_for_site(
    model: SiteModel,
    strategy: str,
    longest: float,
    tell: Callable[[int], object] = lambda _: None,
    *,
    p95: bool = False,
) -> tuple[int, list[SiteEstimate]]:
    """Find the fewest virtual QPUs with which jobs take no longer than with any other number.

    Simulate the site's hybrid jobs as they arrive, exactly as `simulate` does. `longest` limits the
    mean wait or, with `p95`, the 95th percentile. If payloads wait longer with every number, choose
    the fewest with about the shortest wait.
    """
    known: dict[int, SiteEstimate] = {}

    def estimate(vqpus: int) -> SiteEstimate:
        if vqpus not in known:
            tell(vqpus)
            known[vqpus] = _site_estimate(model, strategy, vqpus)
        return known[vqpus]

    def waits(found: SiteEstimate) -> float:
        return (found.usual if p95 else found.wait).mean

    number = 1
    while number < MOST_AT_SITE:
        before, after = estimate(number).turnaround.mean, estimate(2 * number).turnaround.mean
        if after >= (1 - SAME) * before:
            break
        number *= 2
    within = [each for each in known.values() if waits(each) <= longest]
    if not within:
        shortest = min(map(waits, known.values()))
        best = min(n for n, each in known.items() if waits(each) <= (1 + SAME) * shortest)
        return best, [known[each] for each in sorted(known)]
    least = min(each.turnaround.mean for each in within)

    def good(vqpus: int) -> bool:
        found = estimate(vqpus)
        return waits(found) <= longest and found.turnaround.mean <= (1 + SAME) * least

    best = min(each.vqpus for each in within if good(each.vqpus))
    low = best // 2
    while best - low > 1:
        middle = (best + low) // 2
        if good(middle):
            best = middle
        else:
            low = middle
    return best, [known[each] for each in sorted(known)]


SITE_REPLICATIONS = 3


def _site_estimate(model: SiteModel, strategy: str, vqpus: int) -> SiteEstimate:
    (found,) = simulate(model, [StrategySetup(strategy, vqpus)], SITE_REPLICATIONS)
    figures, rounds = found.estimates(), model.hybrid.rounds
    queue = figures["queue_qpu"]
    return SiteEstimate(
        vqpus,
        MeanEstimate(queue.mean / rounds, queue.half / rounds),
        figures["queue_qpu_p95"],
        figures["turnaround"],
        figures["qpu_occupancy"],
    )


@dataclass(frozen=True)
class SharingFormula:
    """Expectation for `jobs` jobs that share a QPU, by mean-value analysis."""

    jobs: int
    wait: float
    """Mean wait of a payload in seconds."""
    occupancy: float


def mean_value_analysis(quantum: float, classical: float, most: int) -> list[SharingFormula]:
    """Return the expectations for 1 to `most` jobs if payload and work times are exponential.

    With constant times, no job waits up to 1 + classical / quantum jobs.
    """
    found, queue = [], 0.0
    for jobs in range(1, most + 1):
        response = quantum * (1 + queue)
        throughput = jobs / (response + classical)
        queue = throughput * response
        found.append(SharingFormula(jobs, response - quantum, throughput * quantum))
    return found


def offer_by_formula(quantum: float, classical: float, longest: float) -> SharingFormula:
    """Find the most jobs with a mean wait of at most `longest` if all times are exponential."""
    fitting = (e for e in mean_value_analysis(quantum, classical, MOST) if e.wait <= longest)
    return max(fitting, key=lambda each: each.jobs)


FULL = 0.85
"""Occupancy above which waits grow out of hand."""
OUTER = 1.645
"""Standard deviations on either side that hold 90 % of a normal distribution."""


@dataclass(frozen=True)
class GrowthTarget:
    """A yearly growth, its uncertainty, and what the QPUs have to hold."""

    yearly: float
    spread: float = 0.0
    """Standard deviation of one year's growth; good and bad years add up at random."""
    wait_p95: float | None = None
    """Seconds that 95 % of the payloads may wait at most; None for an occupancy of `FULL`."""


@dataclass(frozen=True)
class GrowthPlan:
    """How a number of QPUs copes with a site's demand."""

    qpus: int
    occupancy: float
    wait: float
    """Mean wait of a payload in seconds for random arrivals; infinite if overloaded."""
    usual: float
    """95th percentile of the waits."""
    full_at: float
    """Occupancy from which on the QPUs no longer suffice."""
    full_in: float
    """Years until then."""
    soonest: float
    """Years until then if demand grows faster than in 95 % of all cases."""
    latest: float
    """Years until then if demand grows slower than in 95 % of all cases."""

    @property
    def is_full(self) -> bool:
        """Whether the QPUs do not suffice now."""
        return self.occupancy >= self.full_at


def growth(payloads_per_day: float, quantum: float, target: GrowthTarget, qpus: int) -> GrowthPlan:
    """Plan `qpus` QPUs for a demand that grows."""
    offered = payloads_per_day * quantum / 86_400
    occupancy = offered / qpus
    full_at = FULL if target.wait_p95 is None else _occupancy_for(target.wait_p95, qpus, quantum)
    years = [
        _years(occupancy, full_at, target.yearly, side * OUTER * target.spread)
        for side in (0, 1, -1)
    ]
    wait, usual = _erlang(offered, qpus, quantum)
    return GrowthPlan(qpus, min(1.0, occupancy), wait, usual, full_at, *years)


def _years(occupancy: float, full: float, yearly: float, outer: float) -> float:
    """Years t until growth of log(1 + yearly) t, plus `outer` times the root of t, fills a QPU."""
    if occupancy >= full:
        return 0.0
    rate = log(1 + yearly)
    if not occupancy or (rate <= 0 and outer <= 0):
        return inf
    room = log(full / occupancy)
    under_root = outer**2 + 4 * rate * room
    if under_root < 0:
        return inf  # a shrinking demand never gets there
    if not rate:
        return (room / outer) ** 2
    return ((sqrt(under_root) - outer) / (2 * rate)) ** 2


def growth_advice(plans: Sequence[GrowthPlan], target: GrowthTarget) -> str:
    """Advise whether and when to buy another QPU."""
    now, more = plans[0], plans[1]
    if now.is_full:
        wait = "without end" if isinf(now.wait) else f"{now.wait:,.0f} s"
        if more.is_full:
            return f"buy now, and more than one: even {_qpus(more.qpus)} cannot take the demand"
        return (
            f"buy now: with {_qpus(now.qpus)}, busy for {now.occupancy:.0%} of the time, payloads "
            f"wait {wait}; with {_qpus(more.qpus)}, {more.wait:,.0f} s"
        )
    if isinf(now.full_in):
        where = f"below {now.full_at:.0%}"
        return f"do not buy: a demand that does not grow leaves {_qpus(now.qpus)} {where}"
    words = (
        f"do not buy yet: at {target.yearly:+.0%} per year, {_qpus(now.qpus)} will be "
        f"{now.full_at:.0%} busy in {now.full_in:.1f} years, {_qpus(more.qpus)} in "
        f"{more.full_in:.1f}"
    )
    if not target.spread:
        return words
    later = "never" if isinf(now.latest) else f"after {now.latest:.1f}"
    return (
        f"{words}; it may be after {now.soonest:.1f} years or {later} (90 % of all cases): decide "
        f"again in {now.soonest:.1f} years, less the time that a delivery takes"
    )


def _qpus(number: int) -> str:
    return f"{number} QPU{'' if number == 1 else 's'}"


def _occupancy_for(wait: float, servers: int, seconds: float) -> float:
    """Return the occupancy at which 95 % of the payloads wait at most `wait`, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        fits = _erlang(middle * servers, servers, seconds)[1] <= wait
        low, high = (middle, high) if fits else (low, middle)
    return low


def _erlang(offered: float, servers: int, seconds: float) -> tuple[float, float]:
    """Return the mean wait and its 95th percentile by Erlang's delay formula."""
    if offered >= servers:
        return inf, inf
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    delayed = servers * blocked / (servers - offered * (1 - blocked))
    pace = seconds / (servers - offered)
    return delayed * pace, pace * max(0.0, log(delayed / (1 - USUAL))) if delayed else 0.0
