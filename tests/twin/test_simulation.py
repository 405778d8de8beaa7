from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
import simpy

from qtide.backends.models.failures import Window
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Delays, SiteModel
from qtide.core.metrics import measure
from qtide.strategies.strategy import strategy_names
from qtide.twin.simulation import StrategySetup
from tests.twin.sites import BUSY, alone, loop, played, wide


@pytest.mark.parametrize("strategy", strategy_names())
def test_hybrid_jobs_get_through_a_busy_site(strategy: str) -> None:
    jobs = [wide(600.0 * number) for number in range(20)]
    ledgers = played(BUSY, StrategySetup(strategy, 2), jobs)
    assert len(ledgers) == 20
    waits = sum(measure(spans).queue_nodes for spans in ledgers)
    assert waits > 0  # the others' jobs were in the way
    assert ledgers == played(BUSY, StrategySetup(strategy, 2), jobs)


@pytest.mark.parametrize("strategy", strategy_names())
@pytest.mark.parametrize("number", [1, 3])
def test_without_other_users_the_batch_system_is_the_plain_queue(
    strategy: str, number: int
) -> None:
    fifo = SiteModel(nodes=4, delays=Delays(grant=2.0, start=1.0))
    jobs = [wide(10.0 * n) for n in range(number)]
    plain, batch = (
        [measure(spans) for spans in played(site, StrategySetup(strategy, 2), jobs)]
        for site in (fifo, replace(fifo, scheduler="easy"))
    )
    if number == 1:
        assert batch == plain
    else:  # backfilling may only help
        assert max(each.jobs[0].end for each in batch) <= max(each.jobs[0].end for each in plain)


@pytest.mark.parametrize("jobs", [1, 2, 5, 9, 14])
@pytest.mark.parametrize("strategy", ["workflow", "elastic"])
def test_the_closed_loop_is_the_formula_and_what_simpy_says(strategy: str, jobs: int) -> None:
    rounds, classical, quantum = 6, 80.0, 10.0
    site = SiteModel(nodes=jobs, qpu=QpuModel(order="arrival"))
    ledgers = played(site, StrategySetup(strategy, jobs), [loop(rounds, classical, quantum)] * jobs)
    total = max(span.end for spans in ledgers for span in spans if span.what == "run")
    assert total == with_simpy(jobs, rounds, classical, quantum)
    knee = 1 + classical / quantum
    few = (jobs - 1) * quantum + rounds * (quantum + classical)
    assert total == (few if jobs <= knee else jobs * rounds * quantum + classical)


def with_simpy(jobs: int, rounds: int, classical: float, quantum: float) -> float:
    """When the last job ends."""
    world = simpy.Environment()
    device = simpy.Resource(world, 1)

    def job() -> Generator[Any, Any, None]:
        for _ in range(rounds):
            with device.request() as turn:
                yield turn
                yield world.timeout(quantum)
            yield world.timeout(classical)

    for _ in range(jobs):
        world.process(job())
    world.run()
    return float(world.now)


def test_a_maintenance_of_the_qpu_is_waited_for() -> None:
    qpu = QpuModel(windows=(Window(5, 100),))
    (spans,) = played(SiteModel(nodes=1, qpu=qpu), StrategySetup("workflow"), [loop(2, 10, 10)])
    assert measure(spans).total == 10 + 10 + 85 + 10 + 10


def test_the_time_of_payloads_may_vary_by_seed_alone() -> None:
    site = SiteModel(nodes=3, qpu=QpuModel(spread="exponential"))
    jobs = [replace(loop(3, 10, 10), seed=seed) for seed in (1, 1, 2)]
    walls = [
        measure(spans).total
        for job in jobs
        for spans in played(site, StrategySetup("static"), [job])
    ]
    assert walls[0] == walls[1] != walls[2]


def test_jobs_spread_over_the_qpus() -> None:
    site = replace(alone(BUSY), qpu=QpuModel(number=2))
    ledgers = played(site, StrategySetup("static"), [loop(4, 10, 10), loop(4, 10, 10)])
    assert [measure(spans).total for spans in ledgers] == [80, 80]
    assert [measure(spans).queue for spans in ledgers] == [0, 0]
