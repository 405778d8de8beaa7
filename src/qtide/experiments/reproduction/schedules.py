"""Schedules in virtual time, and the sharing experiment: figures without published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from qtide.backends.models.site_model import SiteModel
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.experiments.reproduction.published import CALIBRATIONS, PublishedSite
from qtide.experiments.reproduction.result import ItemResult, Statement, Value, Workplace
from qtide.experiments.sharing.experiment import measure as measure_sharing
from qtide.experiments.sharing.results import ResultRow
from qtide.experiments.sharing.sharing_plan import SharingPlan
from qtide.twin.advice import MapCell, Prices, strategy_map
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup

PUBLISHED = ("static", "malleable", "workflow")
OURS = "elastic"
LONG, SHORT = 120.0, 0.0
"""Seconds of a quantum phase in the two published experiments."""


@dataclass(frozen=True)
class SharedLoop:
    """Jobs in a closed loop: seconds in total, busy share of the QPU, mean wait of a payload."""

    total: float
    busy: float
    wait: float
    ledgers: list[list[Interval]]


def shared_loop(vqpus: int, jobs: int = 4) -> SharedLoop:
    """Play jobs of short quantum and long classical phases that share one QPU."""
    steps = (HybridStep((30.0,)), HybridStep(quantum=10.0)) * 4
    ledgers = _played("static", vqpus, [HybridJob(steps, seed=n) for n in range(jobs)])
    metrics = measure(_spans(ledgers))
    return SharedLoop(metrics.total, metrics.qpu_occupancy, metrics.queue / (4 * jobs), ledgers)


def _played(strategy: str, vqpus: int, jobs: Sequence[HybridJob]) -> list[list[Interval]]:
    ledgers: list[list[Interval]] = []
    site = SiteModel(nodes=sum(job.nodes for job in jobs))
    setup = StrategySetup(strategy, vqpus)
    Simulation(site, setup, lambda _, spans: ledgers.append(spans)).run(jobs)
    return ledgers


def _spans(ledgers: Sequence[Sequence[Interval]]) -> list[Interval]:
    return [span for spans in ledgers for span in spans]


RATIOS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
WAITS = (0.0, 10.0, 60.0, 600.0)


def strategy_chart(names: Sequence[str]) -> list[list[MapCell]]:
    """Map which of the strategies is best for a job of the published shape on Qluster."""
    site: PublishedSite = CALIBRATIONS["qluster"]
    job = site.job("static", LONG)
    return strategy_map(job, site.site, RATIOS, WAITS, Prices(qpu=0.0), names)


def _leader(cell: MapCell) -> str:
    return f"{cell.strategy} leads" if cell.margin >= EQUAL else "the best two differ"


EQUAL = 0.005
"""Up to this margin, no strategy leads."""


def granularity(_: Workplace, name: str, __: float) -> ItemResult:
    """Map which published strategy is best, by the twin."""
    chart, own = strategy_chart(PUBLISHED), strategy_chart((*PUBLISHED, OURS))
    cells = [
        Value(
            f"quantum/classical {ratio:g}, wait {wait:g} s: {_leader(cell)} by",
            "%",
            (),
            twin=100 * cell.margin,
        )
        for wait, row in zip(WAITS, chart, strict=True)
        for ratio, cell in zip(RATIOS, row, strict=True)
    ]
    best = {cell.strategy for row in chart for cell in row}
    mine = sum(cell.strategy == OURS for row in own for cell in row)
    return ItemResult(
        name,
        "Which strategy for which granularity",
        "Three ways to share a QPU, figure 1, which has no numbers",
        tuple(cells),
        (
            Statement(
                "the strategies complement each other: none is best everywhere", len(best) > 1
            ),
        ),
        (Statement(f"elastic is best in {mine} of {len(cells)} cells", mine > len(cells) / 2),),
        (
            "By the twin of Qluster, for a job of the published shape; a second of the job costs "
            "as much as a node-second. A virtual QPU costs nothing: others use the device, too.",
        ),
    )


def multiplexing(_: Workplace, name: str, __: float) -> ItemResult:
    """Play the same jobs with the QPU to themselves and with virtual QPUs."""
    alone, shared = shared_loop(1), shared_loop(4)
    return ItemResult(
        name,
        "Co-scheduling against virtual QPUs",
        "Three ways to share a QPU, figures 2 and 3, which have no numbers",
        (
            Value("co-scheduling, four jobs: total time", "s", (), twin=alone.total),
            Value("virtual QPUs, four jobs: total time", "s", (), twin=shared.total),
            Value("co-scheduling: QPU busy", "%", (), twin=100 * alone.busy),
            Value("virtual QPUs: QPU busy", "%", (), twin=100 * shared.busy),
        ),
        (
            Statement("under co-scheduling, the QPU idles most of the time", alone.busy < 0.5),
            Statement("virtual QPUs keep it busier", shared.busy > alone.busy),
            Statement("jobs that share end sooner", shared.total < alone.total),
        ),
        notes=("Virtual time: four jobs of 30 s classical and 10 s quantum, four times each.",),
    )


SHARES = "figures-7-8"


def sharing_plan(quick: bool) -> SharingPlan:
    """Return the sharing experiment: bursts if it has to be quick, else circuits, in full."""
    if not quick:
        return SharingPlan()
    numbers = (1, 2, 4, 8, 16)
    return SharingPlan(
        numbers, repetitions=1, sets="sharing-bursts", device="burst", references=REFERENCES
    )


REFERENCES = 3
"""Measurements of a single job in quick mode; each takes seconds, and all gains depend on them."""


def sharing(place: Workplace, name: str, _: float) -> ItemResult:
    """Measure jobs that share a QPU through the service."""
    rows = measure_sharing(sharing_plan(place.quick), place.folder / SHARES)
    values = tuple(value for row in rows for value in _shared_values(row))
    statements = []
    for alpha in sorted({row.alpha for row in rows}):
        mine = [row for row in rows if row.alpha == alpha]
        one, last = mine[0], mine[-1]
        linear = last.quantum.mean / (last.replicas * one.quantum.mean)
        statements += [
            Statement(
                f"α = {alpha:g}: occupancy rises with N", last.occupancy.mean > one.occupancy.mean
            ),
            Statement(f"α = {alpha:g}: quantum time grows linearly", abs(linear - 1) < 0.1),
            Statement(f"α = {alpha:g}: queue time grows with N", last.queue.mean > one.queue.mean),
            Statement(f"α = {alpha:g}: sharing beats exclusive use", last.gain > 1),
        ]
    gains = [row.gain for row in rows if row.replicas == max(each.replicas for each in rows)]
    statements.append(Statement("the gain grows with α", gains == sorted(gains)))
    return ItemResult(
        name,
        "What jobs gain that share one QPU",
        "Three ways to share a QPU, figures 7 and 8, published as curves only",
        values,
        tuple(statements),
        notes=(
            "The twin's column is the closed loop of jobs of equal cycles.",
            f"Bursts stand for circuits. Each point was measured once, and a single job "
            f"{REFERENCES} times: the gains are over its median."
            if place.quick
            else "Real circuits.",
            _beside(rows[0]),
        ),
    )


def _shared_values(row: ResultRow) -> list[Value]:
    what, n, loop = f"α = {row.alpha:g}, N = {row.replicas}", row.replicas, row.loop
    busy = tuple(100 * value for value in row.occupancy.values)
    folder = (SHARES,)
    return [
        Value(f"{what}: total time", "s", row.total.values, twin=loop.total(n), runs=folder),
        Value(f"{what}: QPU busy", "%", busy, twin=100 * loop.occupancy(n), runs=folder),
        Value(f"{what}: queue per job", "s", row.queue.values, twin=loop.queue(n), runs=folder),
    ]


def _beside(row: ResultRow) -> str:
    """Say what a cycle takes beside the QPU where the job itself pauses least."""
    seconds = row.loop.classical - row.alpha * row.loop.quantum
    return (
        f"A payload takes {1000 * row.loop.quantum:.0f} ms on the QPU. What a job does beside that "
        f"and its pauses (its own steps, HTTP, the service's disk) takes {1000 * seconds:.0f} ms "
        "each time, longer on a busy computer. With α = 0, sharing gains only that."
    )


SETS = 200
"""Random pairs of jobs behind the statistics."""


@dataclass(frozen=True)
class SplitPair:
    """Two jobs, split and dedicated: the ratio of wall times, and the idle shares of the QPU."""

    wall: float
    idle_dedicated: float
    idle_split: float


def pair(seed: int, kind: str) -> list[list[Interval]]:
    """Play a random pair of jobs of two to five rounds on one QPU."""
    random = Random(seed)
    jobs = [
        HybridJob(
            tuple(
                step
                for _ in range(random.randint(2, 5))
                for step in (
                    HybridStep(quantum=random.lognormvariate(2.0, 0.6)),
                    HybridStep((random.lognormvariate(3.5, 0.8),)),
                )
            ),
            seed=seed,
        )
        for _ in range(2)
    ]
    return _played(kind, 1, jobs)


def pairs() -> list[SplitPair]:
    """Return all pairs."""
    found = []
    for seed in range(SETS):
        whole, split = (measure(_spans(pair(seed, kind))) for kind in ("static", "split"))
        idle = [max(0.0, 1 - each.qpu_busy / each.slots_held) for each in (whole, split)]
        found.append(SplitPair(split.total / whole.total, *idle))
    return found


def splitting(_: Workplace, name: str, __: float) -> ItemResult:
    """Add statistics to the schedules of heterogeneous jobs: random pairs, by the twin."""
    found = pairs()
    shorter = fmean(each.wall < 1 for each in found)
    walls, dedicated, split = (
        tuple(100 * getattr(each, key) for each in found)
        for key in ("wall", "idle_dedicated", "idle_split")
    )
    return ItemResult(
        name,
        "Heterogeneous jobs: dedicated, released early, split and interleaved",
        "Esposito et al., Slurm heterogeneous jobs for hybrid classical-quantum workflows, figures "
        "2 and 3, which leave the statistics to future work",
        (
            Value("split, wall time of two jobs", "% of dedicated", walls),
            Value("dedicated, QPU held but idle", "%", dedicated),
            Value("split, QPU held but idle", "%", split),
            Value("pairs of jobs that end sooner if split", "%", (100 * shorter,)),
        ),
        (
            Statement("splitting shortens the wall time", fmean(walls) < 100),
            Statement(
                "splitting cuts the QPU's idle time",
                fmean(split) < fmean(dedicated),
            ),
        ),
        virtual=True,
        notes=(
            f"Virtual time: {SETS} random pairs of jobs of two to five rounds, quantum blocks of "
            "7 s and classical ones of 33 s at the median; the lease ends with each quantum block.",
        ),
    )
