"""The vQPU service itself, driven by the jobs of a simulation in virtual time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from qtide.backends.models.failures import Window
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import Mix, SiteModel
from qtide.core.errors import UsageError
from qtide.core.metrics import measure
from qtide.strategies.strategy import strategy_names
from qtide.twin.capacity import mean_value_analysis
from qtide.twin.replications import replicate
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup
from tests.twin.sites import loop, played
from tests.twin.test_simulation import with_simpy

FIFO = ServiceModel("fifo", commit=0.0)


def ends(model: SiteModel, vqpus: int, jobs: list[HybridJob]) -> dict[int, float]:
    """When each user's job ended, under workflow."""
    found: dict[int, float] = {}
    simulation = Simulation(
        model,
        StrategySetup("workflow", vqpus),
        lambda job, spans: found.update({job.user: max(span.end for span in spans)}),
    )
    simulation.run(jobs)
    return found


@pytest.mark.parametrize("jobs", [1, 2, 9, 14])
@pytest.mark.parametrize("strategy", ["workflow", "elastic"])
def test_the_closed_loop_is_the_formula_and_what_simpy_says(strategy: str, jobs: int) -> None:
    rounds, classical, quantum = 6, 80.0, 10.0
    site = SiteModel(nodes=jobs, service=FIFO)
    ledgers = played(site, StrategySetup(strategy, jobs), [loop(rounds, classical, quantum)] * jobs)
    total = max(span.end for spans in ledgers for span in spans if span.what == "run")
    assert total == with_simpy(jobs, rounds, classical, quantum)
    few = (jobs - 1) * quantum + rounds * (quantum + classical)
    assert total == (
        few if jobs <= 1 + classical / quantum else jobs * rounds * quantum + classical
    )


def test_random_times_give_the_waits_of_mean_value_analysis() -> None:
    jobs, rounds = 4, 250
    site = SiteModel(nodes=jobs, qpu=QpuModel(spread="exponential"), service=FIFO)
    random = Random(1)
    loops = []
    for seed in range(jobs):
        between = [random.expovariate(1 / 20) for _ in range(rounds)]
        steps = [
            step for each in between for step in (HybridStep(quantum=10.0), HybridStep((each,)))
        ]
        loops.append(HybridJob(tuple(steps), seed=seed))
    ledgers = played(site, StrategySetup("workflow", jobs), loops)
    wait = sum(measure(spans).queue_qpu for spans in ledgers) / jobs / rounds
    assert wait == pytest.approx(mean_value_analysis(10.0, 20.0, jobs)[-1].wait, rel=0.1)


@pytest.mark.parametrize("strategy", strategy_names())
def test_several_jobs_share_several_devices(strategy: str) -> None:
    site = SiteModel(nodes=12, qpu=QpuModel(number=2), service=ServiceModel())
    ledgers = played(site, StrategySetup(strategy, 2), [loop(4, 10, 10, n) for n in range(6)])
    lanes = {span.lane for spans in ledgers for span in spans if span.what == "busy"}
    assert len(ledgers) == 6 and {"qpu/qpu-1", "qpu/qpu-2"} <= lanes
    for device in ("qpu/qpu-1", "qpu/qpu-2"):
        busy = sorted(
            (span.start, span.end) for spans in ledgers for span in spans if span.lane == device
        )
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(busy))


def test_fair_share_lets_a_newcomer_pass_who_first_come_first_served_does_not() -> None:
    greedy = [replace(loop(3, 0.0, 100.0), user=1) for _ in range(5)]
    newcomer = replace(loop(1, 0.0, 100.0, submit=450.0), user=2)
    site = SiteModel(nodes=6, service=FIFO)
    fair = replace(site, service=ServiceModel("fair", commit=0.0))
    assert ends(fair, 6, [*greedy, newcomer])[2] == 600
    assert ends(site, 6, [*greedy, newcomer])[2] == 1000


def test_promises_are_counted_and_kept_if_payloads_take_as_long_as_they_say() -> None:
    service = ServiceModel(longest=60.0)
    site = SiteModel(nodes=8, service=service, hybrid=Mix(jobs=30, days=0.05, nodes=1, quantum=30))
    figures = replicate(site, StrategySetup("workflow", 8), 0)
    assert 0 < figures.promises_made < 1 and figures.promises_kept == 1


def test_a_promise_is_broken_by_payloads_that_take_far_longer_than_they_say() -> None:
    site = SiteModel(
        nodes=8,
        qpu=QpuModel(spread="lognormal", variation=2.0),
        service=ServiceModel(longest=20.0),
        hybrid=Mix(jobs=60, days=0.05, nodes=1, tasks=(20.0,), quantum=10, alone=0.0),
    )
    assert 0.9 < replicate(site, StrategySetup("workflow", 8), 0).promises_kept < 1


def test_calibrations_and_maintenances_are_waited_for() -> None:
    daily, once = Window(at=50, lasts=20, every=1000), Window(at=15, lasts=10)
    site = SiteModel(nodes=1, qpu=QpuModel(windows=(daily, once)), service=FIFO)
    (spans,) = played(site, StrategySetup("workflow"), [loop(4, 0.0, 15.0)])
    starts = [span.start for span in spans if span.what == "busy" and span.lane == "qpu/qpu-1"]
    assert starts == pytest.approx([0, 25, 40, 70], abs=0.02)


def test_a_maintenance_that_ends_as_a_calibration_begins_is_over() -> None:
    daily, once = Window(at=50, lasts=20, every=1000), Window(at=40, lasts=10)
    site = SiteModel(nodes=1, qpu=QpuModel(windows=(daily, once)), service=FIFO)
    (spans,) = played(site, StrategySetup("workflow"), [loop(2, 0.0, 45.0)])
    starts = [span.start for span in spans if span.what == "busy" and span.lane == "qpu/qpu-1"]
    assert starts == pytest.approx([0, 70], abs=0.02)


def test_a_payload_over_the_limit_of_the_service_fails_its_job_alone() -> None:
    site = SiteModel(nodes=2, service=replace(FIFO, limit=50.0))
    simulation = Simulation(site, StrategySetup("workflow", 2), lambda *_: None)
    simulation.run([loop(1, 1.0, 60.0), loop(1, 1.0, 40.0)])
    assert simulation.failed == 1


def test_licences_are_leases_of_all_devices_together() -> None:
    qpu = QpuModel(number=2, licences=1)
    jobs = [loop(1, 0.0, 100.0), loop(1, 0.0, 100.0)]
    for service in (None, FIFO):
        site = SiteModel(nodes=6, qpu=qpu, service=service)
        assert (
            max(measure(spans).total for spans in played(site, StrategySetup("static"), jobs))
            == 200
        )


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(UsageError, match="no policy 'lucky'; there are: fair, fifo"):
        Simulation(
            SiteModel(service=ServiceModel("lucky")), StrategySetup("static"), lambda *_: None
        )
