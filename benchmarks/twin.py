"""The twin: against the published tables, against simpy, at the size of a centre, and against us.

The trace has the size of KTH-SP2's (28,000 jobs, 100 nodes) and is generated, unless one is named.
Peers in the same run: EASY as a simpy model and as plain loops that numba compiles, both with the
same schedule; and real runs on the local
cluster, of which the twin knows single jobs and predicts two at once.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from claims import Claim, at_least, at_most, conclude
from easy_peer import Easy, with_numba

from qtide.backends.models.background import Background, Generator
from qtide.backends.models.batch_queue import BatchQueue
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import Mix, SiteModel
from qtide.backends.models.trace import Array, Trace, read_swf
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.runs.comparison import compare
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.calibration import calibrate, job_of
from qtide.twin.replications import rare_collections, replicate
from qtide.twin.simulation import HybridJob, Simulation, StrategySetup

sys.path.append(str(Path(__file__).parent.parent))
from qtide.experiments.reproduction.published import CALIBRATIONS, QLUSTER, TABLES, predict

JOBS, NODES, HYBRIDS, ROUNDS = 28_000, 100, 600, 3
KTH_SIZED = Generator(
    jobs=JOBS, days=340, largest=64, smaller=0.72, mean_run=6500, longest=216_000, seed=1
)
YEAR = SiteModel(
    nodes=10_000,
    scheduler="easy",
    qpu=QpuModel(number=10),
    background=Background(
        generate=Generator(jobs=1_000_000, days=365, largest=2048, smaller=0.6, mean_run=20_000)
    ),
    hybrid=Mix(jobs=50_000, days=365, quantum=60.0),
    service=ServiceModel(),
)


def published() -> list[Claim]:
    """Every published number beside the twin's."""
    titles = ("wall", "twin", "%", "node-s", "twin", "%")
    print(f"{'site, strategy, jobs, q':34}" + "".join(f"{title:>9}" for title in titles))
    claims = []
    for name, most in (("qluster", 1.5), ("leonardo", 2.0)):
        worst, predicted = 0.0, 0.0
        for row in TABLES[name]:
            found = predict(CALIBRATIONS[name], row["strategy"], row["jobs"], row["quantum_s"])
            wall = 100 * (found.wall / row["wall"] - 1)
            usage = 100 * (found.usage / row["usage"] - 1)
            worst = max(worst, abs(wall), abs(usage))
            if row["jobs"] > 1:
                predicted = max(predicted, abs(wall), abs(usage))
            what = f"{name} {row['strategy']} {row['jobs']} {row['quantum_s']}"
            print(
                f"{what:34}{row['wall']:9.2f}{found.wall:9.2f}{wall:+9.2f}"
                f"{row['usage']:9.2f}{found.usage:9.2f}{usage:+9.2f}"
            )
        claims.append(at_most(f"{name}: worst of {2 * len(TABLES[name])} numbers, %", worst, most))
        if predicted:
            claims.append(at_most(f"{name}: worst of those of two jobs, %", predicted, most))
    return claims


def scheduled(trace: Trace, nodes: int) -> tuple[float, list[float]]:
    """Processor seconds of EASY by the twin, the best of several; and when each job started."""
    starts, best = np.zeros(len(trace)), float("inf")

    def started(rows: Array) -> None:
        starts[rows[:, 0].astype(int)] = rows[:, 1]

    for _ in range(2 * ROUNDS + 1):  # the first one loads the compiled code
        began = time.process_time()
        BatchQueue(nodes, trace.chunks(), started).advance()
        best = min(best, time.process_time() - began)
    return best, list(map(float, starts))


def speed(trace: Trace, nodes: int) -> list[Claim]:
    """EASY on a trace, beside simpy on the same."""
    ours, starts = scheduled(trace, nodes)
    simpy_seconds = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        theirs = Easy(trace, nodes).run()
        simpy_seconds = min(simpy_seconds, time.process_time() - began)
    plain, loops = float("inf"), list(map(float, with_numba(trace, nodes)))  # which compiles it
    for _ in range(2 * ROUNDS):
        began = time.process_time()
        with_numba(trace, nodes)
        plain = min(plain, time.process_time() - began)
    wait = np.mean(np.array(starts) - trace.submit)
    print(f"\nEASY: {len(trace)} jobs, which wait for {wait:.0f} s on average, in {ours:.4f} s;")
    print(f"simpy {simpy_seconds:.2f} s, plain loops compiled by numba {plain:.4f} s")
    return [
        at_least("EASY, jobs/s", len(trace) / ours, 200_000),
        at_least("EASY, times as fast as simpy", simpy_seconds / ours, 50),
        at_least("EASY, times as fast as plain loops compiled by numba", plain / ours, 1.0),
        at_most("EASY, jobs that start at another time in simpy", _different(starts, theirs), 0),
        at_most("EASY, jobs that start at another time by loops", _different(starts, loops), 0),
    ]


def _different(ours: list[float], theirs: list[float]) -> int:
    return sum(abs(one - other) > 1e-6 for one, other in zip(ours, theirs, strict=True))


def hybrids() -> list[Claim]:
    """Published jobs per second of one core, by each strategy's own code: the best of rounds."""
    claims = []
    for name in strategy_names():
        rate = HYBRIDS / min(played_for(name) for _ in range(ROUNDS))
        claims.append(at_least(f"{name}: hybrid jobs/s, 12 phases each", rate, 500))
    return claims


def played_for(strategy: str) -> float:
    """Processor seconds of hybrid jobs under a strategy."""
    model = SiteModel(nodes=1000, scheduler="easy", qpu=QpuModel(number=10, offload=3.59))
    simulation = Simulation(model, StrategySetup(strategy, 4), lambda *_: None)
    jobs = [QLUSTER.job("static", 60.0, 30.0 * number) for number in range(HYBRIDS)]
    began = time.process_time()
    with rare_collections():
        simulation.run(jobs)
    return time.process_time() - began


def year(strategy: str) -> list[Claim]:
    """A year of a centre of 10,000 nodes."""
    began = time.process_time()
    found = replicate(YEAR, StrategySetup(strategy, 4), 0)
    minutes = (time.process_time() - began) / 60
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\na year under {strategy}: {minutes:.1f} min of one core, {memory:.2f} GB")
    for name, value in found.as_dict().items():
        print(f"{name:24}{value:16,.3f}")
    return [
        at_most("the year of a centre, min", minutes, 10),
        at_most("the year of a centre, GB", memory, 2),
        at_least("the year of a centre, hybrid jobs", found.jobs, 50_000),
    ]


def played(model: SiteModel, strategy: str, jobs: list[HybridJob]) -> list[list[Interval]]:
    """The ledgers of jobs in virtual time."""
    ledgers: list[list[Interval]] = []
    simulation = Simulation(
        model, StrategySetup(strategy, len(jobs)), lambda _, spans: ledgers.append(spans)
    )
    simulation.run(jobs)
    return ledgers


def local(scale: float) -> list[Claim]:
    """Two jobs at once on the local cluster, by the twin that knows single runs alone."""
    spec = Spec("synthetic", ["published"], cluster="local:3", time_scale=scale, nodes=3)
    with tempfile.TemporaryDirectory() as folder:
        cases = compare(Path(folder), spec, strategy_names(), [1, 2], lambda *_: None, warm_up=True)
        singles = {case.strategy: case.panel().intervals for case in cases if case.jobs == 1}
        doubles = {case.strategy: case.panel().metrics for case in cases if case.jobs == 2}
    claims = []
    print(f"\n{'two jobs, local cluster':24}{'total s':>10}{'twin':>10}{'node-s':>10}{'twin':>10}")
    for name, spans in singles.items():
        model = calibrate([spans], keeps_agents=True).site(3)
        ledgers = played(model, name, [job_of(spans, 3)] * 2)
        total = max(span.end for found in ledgers for span in found if span.what == "run")
        held = sum(measure(found).nodes_held for found in ledgers)
        real = doubles[name]
        print(f"{name:24}{real.total:10.1f}{total:10.1f}{real.nodes_held:10.1f}{held:10.1f}")
        error = max(abs(total / real.total - 1), abs(held / real.nodes_held - 1))
        claims.append(at_most(f"{name}: two local jobs, worst error, %", 100 * error, 5))
    return claims


def easy(file: Path | None) -> list[Claim]:
    """EASY on the trace of a file, or on a generated one."""
    if file is None:
        return speed(KTH_SIZED.trace(), NODES)
    read = read_swf(file)
    return speed(read.trace, read.nodes or NODES)


def main() -> None:
    """Measure everything, or the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, help="an SWF file instead of generated jobs")
    parser.add_argument("--scale", type=float, default=0.02, help="of the local clock")
    parts: dict[str, Callable[[], list[Claim]]] = {
        "easy": lambda: easy(options.trace),  # first: it takes milliseconds, of clean memory
        "published": published,
        "hybrid": hybrids,
        "local": lambda: local(options.scale),
        "year": lambda: year("workflow"),
    }
    parser.add_argument("part", nargs="*", help=f"{', '.join(parts)}; by default all of them")
    options = parser.parse_args()
    if unknown := set(options.part) - parts.keys():
        parser.error(f"there is no part {min(unknown)}; name {', '.join(parts)}")
    named = [measured for name, measured in parts.items() if name in (options.part or parts)]
    conclude("twin", [claim for measured in named for claim in measured()])


if __name__ == "__main__":
    main()
