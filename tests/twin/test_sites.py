"""Sites with partitions, nodes that fail, tables of durations and options of strategies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qtide.backends.clusters.batch_cluster import BatchCluster
from qtide.backends.models.background import Background, Generator
from qtide.backends.models.failures import Failures, Loss
from qtide.backends.models.site_model import Delays, Mix, Partition, SiteModel
from qtide.core.errors import UsageError
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.strategies.strategy import strategy_names
from qtide.twin.replications import replicate
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup
from qtide.twin.workload import HybridWorkload
from tests.twin.sites import BUSY, played, wide

FAILING = replace(BUSY, failures=Failures(every=20_000, back=600), delays=Delays(turnaround=5.0))
CLASSICAL = (HybridStep((70.0, 50.0)), HybridStep(quantum=0.0), HybridStep((30.0,)))
"""Of a job that never waits for a QPU."""


def background(seed: int) -> Background:
    return Background(generate=Generator(jobs=300, days=0.2, largest=16, seed=seed))


@pytest.mark.parametrize("strategy", strategy_names())
def test_jobs_go_on_where_nodes_fail(strategy: str) -> None:
    jobs = [wide(600.0 * number) for number in range(15)]
    ledgers: list[list[Interval]] = []
    interrupted: list[float] = []
    simulation = Simulation(
        FAILING,
        StrategySetup(strategy, 2),
        lambda _, spans: ledgers.append(spans),
        interrupted=lambda _, left: interrupted.append(left),
    )
    simulation.run(jobs)
    assert len(ledgers) == 15 and simulation.failed == 0
    assert interrupted and min(interrupted) >= 0
    busy = sum(measure(spans).nodes_busy for spans in ledgers)
    assert busy > 15 * 3 * (76 + 50) - 1


def test_a_site_whose_nodes_fail_gets_them_back() -> None:
    site = replace(FAILING, failures=Failures(every=3000, back=100))
    simulation = Simulation(site, StrategySetup("workflow", 2), lambda *_: None)
    simulation.run([wide(600.0 * number) for number in range(10)])
    cluster = simulation.clusters[0]
    assert isinstance(cluster, BatchCluster)
    assert cluster.batch.nodes + len(cluster._dead) >= site.nodes
    assert cluster.batch.nodes <= site.nodes
    assert cluster.size == site.nodes - len(cluster._dead)


def test_failures_are_the_same_for_a_seed_and_others_for_another() -> None:
    site = replace(FAILING, hybrid=Mix(jobs=10, days=0.1))
    first, again, other = (replicate(site, StrategySetup("elastic", 2), n) for n in (0, 0, 1))
    assert first == again != other


def test_a_job_whose_nodes_are_lost_for_good_fails_alone() -> None:
    site = SiteModel(nodes=3, losses=(Loss(10.0, "n1"),))
    simulation = Simulation(site, StrategySetup("static"), lambda *_: None)
    simulation.run([wide(), HybridJob((HybridStep((10.0,), nodes=3),), submit=5000.0, nodes=3)])
    assert simulation.failed == 1


def test_a_request_waits_for_a_node_that_will_be_back() -> None:
    site = SiteModel(nodes=3, losses=(Loss(10.0, "n1", back=100.0),))
    (spans,) = played(site, StrategySetup("static"), [replace(wide(), submit=50.0)])
    held = min(span.start for span in spans if span.what == "held")
    assert held == 110


def test_partitions_do_not_disturb_each_other() -> None:
    parts = (
        Partition("small", 16, background=background(1)),
        Partition("large", 24, scheduler="fifo", background=background(2)),
    )
    site = SiteModel(scheduler="easy", partitions=parts)
    jobs = [HybridJob(CLASSICAL * 3, 200.0 * n, nodes=2, partition=n % 2) for n in range(40)]

    def walls(model: SiteModel, chosen: list[HybridJob]) -> dict[float, list[float]]:
        found: dict[float, list[float]] = {}
        Simulation(
            model,
            StrategySetup("workflow", 40),
            lambda job, spans: found.update(
                {job.submit: [s.end for s in spans if s.lane.startswith("node/")]}
            ),
        ).run(chosen)
        return found

    both = walls(site, jobs)
    for number, part in enumerate(site.parts()):
        own = [replace(job, partition=0) for job in jobs[number::2]]
        apart = walls(part, own)
        assert {submit: both[submit] for submit in apart} == apart
        waits = [min(ends) - submit for submit, ends in apart.items()]
        assert max(waits) > 70  # the others of the partition were in the way


def test_hybrid_jobs_come_to_partitions_in_proportion() -> None:
    parts = (Partition("a", 8, hybrid=3), Partition("b", 8, hybrid=1), Partition("c", 8, hybrid=0))
    workload = HybridWorkload.of(SiteModel(partitions=parts, hybrid=Mix(jobs=400)), 0)
    places = [job.partition for job in workload.hybrids()]
    assert 250 < places.count(0) < 350 and places.count(2) == 0


def test_a_share_of_every_partition_becomes_hybrid_in_order() -> None:
    parts = tuple(Partition(name, 16, background=background(n)) for n, name in enumerate("ab"))
    workload = HybridWorkload.of(SiteModel(partitions=parts, hybrid=Mix(share=0.3)), 0)
    jobs = list(workload.hybrids())
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)
    assert {job.partition for job in jobs} == {0, 1}
    rest = sum(len(chunk) for others in workload.others() for chunk in others)
    assert len(jobs) + rest == 600


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 100), (2, 60), (3, 60), (4, 35)])
def test_a_phase_takes_what_its_table_says_for_the_nodes_of_the_job(
    nodes: int, seconds: float
) -> None:
    mix = Mix(jobs=1, nodes=nodes, table={1: 100, 2: 60, 4: 35}, rounds=1, quantum=0, alone=0)
    (job,) = HybridWorkload.of(SiteModel(nodes=4, hybrid=mix), 0).hybrids()
    assert job.shortest == seconds
    for strategy in strategy_names():
        (spans,) = played(SiteModel(nodes=4), StrategySetup(strategy), [job])
        assert measure(spans).total == seconds


def test_a_phase_with_a_table_may_change_its_nodes_while_it_runs() -> None:
    table = {1: 100.0, 2: 60.0, 4: 40.0}
    mix = Mix(jobs=1, nodes=4, table=table, malleable=True, rounds=1, quantum=0, alone=0)
    (job,) = HybridWorkload.of(SiteModel(nodes=4, hybrid=mix), 0).hybrids()
    job = replace(job, submit=0.0)
    (spans,) = played(SiteModel(nodes=4), StrategySetup("static"), [job])
    assert 40 < measure(spans).total < 50  # its first step is on one node
    for spans in played(SiteModel(nodes=4), StrategySetup("elastic"), [job, job]):
        busy = [span for span in spans if span.what == "busy" and span.lane.startswith("node/")]
        sizes = [sum(each.start <= at < each.end for each in busy) for at in (1, 20)]
        assert sizes == [1, 2]
        assert measure(spans).total < 75


def test_a_site_sets_options_of_its_strategies() -> None:
    # of two nodes one is taken: a malleable job waits for it, but not for longer than that
    taken = HybridJob((HybridStep((500.0,)),), nodes=1)
    job = HybridJob((HybridStep((50.0, 50.0)),), submit=1.0, nodes=2)

    def total(timeout: float) -> float:
        options = {"malleable": {"expand_timeout": timeout}}
        site = SiteModel(nodes=2, strategies=options)
        ledgers = played(site, StrategySetup("malleable", 2), [taken, job])
        return measure(ledgers[0]).total

    assert total(20.0) == total(5.0) + 15.0
    wrong = SiteModel(strategies={"malleable": {"patience": 1.0}})
    with pytest.raises(UsageError, match=r"strategies.malleable.patience: there is no such option"):
        Simulation(wrong, StrategySetup("malleable"), lambda *_: None)
