"""Advice on a strategy, against what every strategy then costs at moments the adviser never saw.

Random jobs, 1 to 8 at once, on empty and on crowded sites (EASY, generated strangers), with four
sets of prices. The adviser plays a case at moments of its own; then it is played under every
strategy at other moments of the same workload, and the mean costs are compared. The published
job is also run for real: `local`, or `box`, a Slurm that is put up.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pool
from pathlib import Path
from random import Random
from statistics import fmean

from claims import Claim, Parts, at_least, conclude

from qtide import box
from qtide.backends.models.background import Background, Generator
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Delays, SiteModel
from qtide.core.ledger import Interval
from qtide.core.metrics import Metrics, measure
from qtide.runs.comparison import compare
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.advice import FIRST, LAST, Arrival, Prices, advise
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

PRICES = (
    Prices(),
    Prices(node=0.1, qpu=1.0),
    Prices(node=1.0, qpu=0.0),
    Prices(node=3.0, qpu=30.0),
)
MOMENTS = 64
"""Waits differ so much from moment to moment that the best of fewer is often another one."""
NEAR = 1.02
DAYS = 0.4


@dataclass(frozen=True)
class AdviceCase:
    """A job, the site that it comes to, and what things cost there."""

    number: int
    job: HybridJob
    site: SiteModel
    arrival: Arrival
    prices: Prices

    @staticmethod
    def of(number: int) -> AdviceCase:
        """Draw a case; every other one is on a crowded site."""
        chance = Random(number)
        tasks = tuple(chance.uniform(5, 90) for _ in range(chance.choice((1, 2, 3))))
        steps = [HybridStep(tasks), HybridStep(quantum=chance.choice((1.0, 10.0, 60.0, 180.0)))]
        if chance.random() < 0.7:
            steps.append(HybridStep((chance.uniform(2, 60),)))
        jobs = chance.choice((1, 2, 4, 8))
        delays = Delays(grant=chance.choice((0.2, 3.6, 15.0)), start=chance.choice((0.1, 0.6, 3.0)))
        site = SiteModel(nodes=32, delays=delays, qpu=QpuModel(offload=chance.choice((0.0, 3.6))))
        if number % 2:
            seconds = chance.choice((1500, 2500, 3500))
            strangers = Generator(jobs=600, days=DAYS, largest=32, mean_run=seconds, seed=number)
            site = replace(site, scheduler="easy", background=Background(generate=strangers))
        job = HybridJob(tuple(steps) * chance.choice((2, 4)), nodes=len(tasks))
        arrival = Arrival(jobs, chance.choice((1, jobs)))
        return AdviceCase(number, job, site, arrival, PRICES[number // 2 % len(PRICES)])


def cost(case: AdviceCase, name: str) -> float:
    """Mean cost per job over moments of the workload that the adviser does not look at."""
    chance = Random(1000 + case.number)
    crowded = case.site.part("").is_batch
    chunks = case.site.background.chunks(case.site.nodes, case.site.cores) if crowded else ()
    last = max((float(chunk.submit[-1]) for chunk in chunks), default=0.0)
    found = []
    for _ in range(MOMENTS if crowded else 1):
        moment = chance.uniform(FIRST, LAST) * last
        ledgers: list[list[Interval]] = []
        setup = StrategySetup(name, case.arrival.vqpus)
        simulation = Simulation(case.site, setup, lambda _, spans: ledgers.append(spans))  # noqa: B023 - played at once
        simulation.run([replace(case.job, submit=moment)] * case.arrival.jobs)
        found += [_cost(measure(spans), case.prices) for spans in ledgers]
    return fmean(found)


def _cost(metrics: Metrics, prices: Prices) -> float:
    time, nodes = prices.second * metrics.total, prices.node * metrics.nodes_held
    return time + nodes + prices.qpu * metrics.slots_held


def regret(number: int) -> tuple[int, tuple[str, str, float]]:
    """The advised strategy of a case, the best one, and by how much the former costs more."""
    case = AdviceCase.of(number)
    advised = advise(case.job, case.site, prices=case.prices, arrival=case.arrival).strategy
    costs = {name: cost(case, name) for name in strategy_names()}
    best = min(costs, key=costs.__getitem__)
    return number, (advised, best, costs[advised] / costs[best])


def simulated(cases: int, parts: Parts) -> list[Claim]:
    """Advise on all cases and play them."""
    missing = [number for number in range(cases) if number not in parts.known]
    with Pool() as pool:
        for found in pool.imap_unordered(regret, missing):
            parts.add(*found)
            if parts.over:
                break
    ratios = {number: ratio for number, (_, _, ratio) in parts.known.items() if number < cases}
    for number in sorted(ratios):
        if ratios[number] > NEAR:
            case, (advised, best, ratio) = AdviceCase.of(number), parts.known[number]
            place = "crowded" if number % 2 else "empty"
            print(f"case {number} ({place}, {case.arrival}, {case.prices.words()}): ", end="")
            print(f"{advised} costs {ratio:.3f} x {best}")
    claims = []
    for words, chosen in (("empty sites", 0), ("crowded sites", 1)):
        good = [ratio <= NEAR for number, ratio in ratios.items() if number % 2 == chosen]
        claims.append(at_least(f"{words}: advice within 2 % of the best, share", fmean(good), 0.95))
    every = fmean(ratio <= NEAR for ratio in ratios.values())
    return [*claims, at_least(f"all {len(ratios)} cases, share", every, 0.95)]


SCALE = 0.02
MEASURED: dict[str, Sequence[tuple[int, float, Prices]]] = {
    "local": [(jobs, q, price) for jobs in (1, 2) for q in (5.0, 120.0) for price in PRICES[:3]][
        :10
    ],
    "box": [(jobs, q, price) for jobs in (1, 2) for q in (5.0, 120.0) for price in PRICES[:3]][:10],
}


def measured(place: str) -> list[Claim]:
    """Run the published job under every strategy, and ask whether the advice was right.

    The adviser knows the grant and start times of the place, from a workflow run.
    """
    from qtide.twin.calibration import calibrate, job_of

    good = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known: dict[float, dict[int, dict[str, Metrics]]] = {}
        spans: dict[float, list[Interval]] = {}
        for seconds in sorted({q for _, q, _ in MEASURED[place]}):
            cluster = "local:6" if place == "local" else "slurm"
            words = ["published", "--quantum-s", f"{seconds:g}", "--iterations", "2"]
            spec = Spec("synthetic", words, cluster=cluster, time_scale=SCALE, nodes=3)
            cases = compare(
                folder / f"{seconds:g}", spec, strategy_names(), [1, 2], lambda *_: None
            )
            known[seconds] = {1: {}, 2: {}}
            for case in cases:
                known[seconds][case.jobs][case.strategy] = case.panel().metrics
                if (case.strategy, case.jobs) == ("workflow", 1):
                    spans[seconds] = list(case.panel().intervals)
        for jobs, seconds, prices in MEASURED[place]:
            site = calibrate(
                [spans[seconds]], keeps_agents=True if place == "local" else None
            ).site(6)
            job = job_of(spans[seconds], 3)
            advised = advise(job, site, prices=prices, arrival=Arrival(jobs, jobs)).strategy
            costs = {
                name: prices.second * each.mean_wall
                + (prices.node * each.nodes_held + prices.qpu * each.slots_held) / jobs
                for name, each in known[seconds][jobs].items()
            }
            ratio = costs[advised] / min(costs.values())
            print(f"{place}, {jobs} jobs, q {seconds:g}, {prices.words()}: {advised} {ratio:.3f}")
            good.append(ratio <= NEAR)
    return [at_least(f"{place}: measured, advice within 2 % of the best, share", fmean(good), 0.9)]


def main() -> None:
    """Do all, or the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="*", help="simulated, local, box; by default simulated")
    parser.add_argument("--cases", type=int, default=200)
    Parts.options(parser)
    options = parser.parse_args()
    claims: list[Claim] = []
    for part in options.part or ["simulated"]:
        if part == "simulated":
            claims += simulated(options.cases, Parts(options))
        elif part == "local":
            claims += measured(part)
        else:
            folder = Path(tempfile.mkdtemp(prefix="qtide-box-"))
            try:
                os.environ |= box.env(box.up(folder, nodes=6, qpus=2).folder)
                claims += measured("box")
            finally:
                box.down(folder)
    conclude("advice", claims)


if __name__ == "__main__":
    main()
