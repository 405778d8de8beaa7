"""Sites whose QPUs and service fail, whose partitions share nodes, and whose nodes differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qtide import classical, pretend, program, quantum, task
from qtide.backends.models.background import Background, Generator
from qtide.backends.models.failures import Failures
from qtide.backends.models.qpu_model import QpuModel, ServiceModel
from qtide.backends.models.site_model import Billing, Mix, Partition, SiteModel, read_site
from qtide.backends.models.trace import Trace, write_swf
from qtide.backends.payloads.payload import Burst
from qtide.core.errors import UsageError
from qtide.core.metrics import measure
from qtide.core.resources import WHOLE, BillingWeights, Needs
from qtide.runs.folder import RunFolder, reference
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.advice import Prices, advise, charging, choose
from qtide.twin.calibration import calibrate, job_of
from qtide.twin.capacity import best_offer_for_site
from qtide.twin.replications import replicate
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup
from qtide.twin.workload import HybridWorkload, warnings
from tests.twin.sites import loop, played

FAILING = Failures(every=60.0, back=20.0)


@pytest.mark.parametrize("service", [None, ServiceModel()])
def test_a_payload_that_a_failing_qpu_loses_is_run_again(service: ServiceModel | None) -> None:
    sound = SiteModel(nodes=3, service=service)
    site = replace(sound, qpu=QpuModel(failures=FAILING))
    jobs = [loop(8, 5.0, 15.0), loop(8, 5.0, 15.0)]
    ledgers = played(site, StrategySetup("workflow", 2), jobs)
    totals = [measure(spans).total for spans in ledgers]
    assert min(totals) > max(
        measure(spans).total for spans in played(sound, StrategySetup("workflow", 2), jobs)
    )
    assert totals == [
        measure(spans).total for spans in played(site, StrategySetup("workflow", 2), jobs)
    ]
    lost = [
        span.seconds
        for spans in ledgers
        for span in spans
        if span.what == "busy" and span.lane.startswith("qpu/")
    ]
    assert sum(lost) > 2 * 8 * 15.0  # the device worked in vain, too


def test_while_the_service_is_down_nothing_starts_and_nothing_is_lost() -> None:
    down = Failures(every=100.0, back=50.0)
    site = SiteModel(nodes=3, service=ServiceModel(failures=down), qpu=QpuModel(number=2))
    simulation_spans = played(site, StrategySetup("elastic", 2), [loop(6, 5.0, 10.0)] * 4)
    assert len(simulation_spans) == 4
    outages, begins = down.outages(0), []
    moment = 0.0
    while moment < max(span.end for spans in simulation_spans for span in spans):
        begin = outages.begin(moment)
        moment = outages.end(begin)
        begins.append((begin, moment))
    assert len(begins) > 1
    for spans in simulation_spans:
        for span in spans:
            if span.what == "busy" and span.lane.startswith("qpu/"):
                assert not any(begin < span.start < end for begin, end in begins)


def test_jobs_whose_payloads_fail_too_often_are_counted() -> None:
    site = SiteModel(nodes=3, qpu=QpuModel(failures=Failures(every=5.0, back=1.0)))
    simulation = Simulation(site, StrategySetup("workflow"), lambda *_: None)
    simulation.run([loop(4, 1.0, 200.0)])
    assert simulation.failed == 1


def test_failures_of_another_replication_are_others() -> None:
    model = SiteModel(qpu=QpuModel(failures=FAILING), service=ServiceModel(failures=FAILING))
    one, two = (HybridWorkload.of(model, number).model for number in (0, 1))
    assert one.qpu.failures != two.qpu.failures and one.service != two.service


SHARED = SiteModel(
    scheduler="easy",
    partitions=(
        Partition(
            "cpu", 8, background=Background(generate=Generator(jobs=40, days=0.01, largest=8))
        ),
        Partition("debug", 2, shares="cpu"),
        Partition("other", 4),
    ),
)


def test_partitions_that_share_nodes_share_a_queue() -> None:
    assert SHARED.all_nodes == 12 and SHARED.owners() == [0, 0, 2]
    job = replace(loop(2, 100.0, 10.0, submit=500.0), nodes=2)
    waits = [
        measure(spans).queue_nodes
        for place in range(3)
        for spans in played(SHARED, StrategySetup("static"), [replace(job, partition=place)])
    ]
    assert waits[0] == waits[1] > 0 == waits[2]  # the others of cpu are in the way of debug, too


def test_the_jobs_of_both_partitions_wait_in_one_queue(tmp_path: Path) -> None:
    file = tmp_path / "short.swf"
    write_swf(file, Trace.of([(0.0, 2, 300.0, 300.0, 1), (1.0, 2, 300.0, 300.0, 1)]), 2)
    debug = replace(SHARED.partitions[1], background=Background(trace=str(file)))
    cpu = Partition("cpu", 3)
    site = SiteModel(scheduler="easy", partitions=(cpu, debug))
    (spans,) = played(site, StrategySetup("static"), [replace(loop(1, 10.0, 1.0, 2.0), nodes=2)])
    assert measure(spans).queue_nodes == pytest.approx(598.0)


KINDS = SiteModel(
    scheduler="easy",
    kinds=("cpu:4,cores=16", "gpu:2,cores=8,gpus=4"),
    billing=Billing(node=0.0, core=1.0, gpu=16.0),
    hybrid=Mix(jobs=6, days=0.05, nodes=2, tasks=(30.0,) * 16, quantum=20.0, alone=40.0),
)


def on_kinds() -> HybridJob:
    many = HybridStep((30.0,) * 32, needs=Needs.of(cores=1))
    train = HybridStep((40.0,) * 8, needs=Needs.of(cores=2, gpus=1, kind="gpu"))
    return HybridJob((many, HybridStep(quantum=20.0), train) * 2, nodes=2)


@pytest.mark.parametrize("strategy", strategy_names())
def test_tasks_share_nodes_of_the_kind_that_they_need(strategy: str) -> None:
    ledgers = played(KINDS, StrategySetup(strategy, 2), [on_kinds(), on_kinds()])
    for spans in ledgers:
        metrics = measure(spans)
        assert metrics.gpus_busy == pytest.approx(2 * 8 * 40.0)
        assert metrics.cores_busy == pytest.approx(2 * (32 * 30.0 + 8 * 2 * 40.0))
        lanes = {span.lane for span in spans if span.what == "busy" and span.part == (2, 1)}
        assert lanes and all(lane.startswith("node/gpu") for lane in lanes)


def test_what_the_site_charges_decides() -> None:
    """GPU nodes that idle cost much: static holds them, workflow does not."""
    costs = {
        each.strategy: each.node_seconds.expected
        for each in advise(on_kinds(), KINDS, names=["static", "workflow"]).expected
    }
    (spans,) = played(KINDS, StrategySetup("static"), [on_kinds()])
    metrics = measure(spans)
    billed = metrics.cores_held + 16 * metrics.gpus_held
    assert metrics.billing_held == pytest.approx(billed)
    assert costs["static"] == pytest.approx(billed / 16), "16 a second is a node of the usual kind"
    assert costs["workflow"] < costs["static"]
    assert advise(on_kinds(), KINDS, prices=Prices(node=1.0, qpu=0.0)).strategy != "static"


def test_simulate_knows_needs_and_charges() -> None:
    packed = replace(KINDS.hybrid, needs="cores=1", alone_needs="gpus=1,kind=gpu")
    whole = replicate(KINDS, StrategySetup("workflow", 2), 0)
    shared = replicate(replace(KINDS, hybrid=packed), StrategySetup("workflow", 2), 0)
    assert whole.jobs == shared.jobs == 6
    assert shared.node_seconds < 0.3 * whole.node_seconds
    assert shared.charge == pytest.approx(shared.charge) and shared.charge > 0


def test_partitions_can_be_the_kinds_of_a_job() -> None:
    gpu = Partition("gpu", 2, cores=8, gpus=4)
    others = Background(generate=Generator(jobs=60, days=0.02, largest=4, mean_run=2000.0))
    cpu = Partition("cpu", 4, cores=16, background=others)
    site = SiteModel(scheduler="easy", kinds=("cpu", "gpu"), partitions=(cpu, gpu))
    late = replace(on_kinds(), submit=600.0)
    ((spans),) = played(site, StrategySetup("elastic"), [late])
    lanes = {span.lane for span in spans if span.what == "held"}
    assert {lane[:8] for lane in lanes} >= {"node/cpu", "node/gpu"}
    assert measure(spans).queue_nodes > 0


def test_processors_of_a_trace_become_nodes(tmp_path: Path) -> None:
    file = tmp_path / "trace.swf"
    write_swf(file, Trace.of([(0.0, 1, 10.0, 10.0, 1), (500.0, 65, 10.0, 10.0, 1)]), 128)
    text = file.read_text().replace("MaxNodes: 128", "MaxNodes: 4")
    file.write_text(text)
    plain = SiteModel(nodes=4, cores=32, background=Background(trace=str(file)))
    assert "processors" in " ".join(warnings(plain))
    site = replace(plain, background=Background(trace=str(file), processors=True))
    assert warnings(site) == []
    (chunk,) = site.background.chunks(site.nodes, site.cores)
    assert chunk.nodes.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[partitions]]\nname="a"\nnodes=2\nshares="b"\n', "'b' has no nodes of its own"),
        (
            '[[partitions]]\nname="a"\nnodes=2\n[[partitions]]\nname="b"\nnodes=3\nshares="a"\n',
            "a, whose nodes it shares, has 2",
        ),
        (
            '[[partitions]]\nname="a"\nnodes=2\n'
            '[[partitions]]\nname="b"\nnodes=1\nshares="a"\ncores=3\n',
            "partitions.b.cores: a, whose nodes it shares, says that",
        ),
        ('kinds=["x"]\n[[partitions]]\nname="a"\nnodes=3\n', "'x' is not a partition"),
        ("[billing.kinds]\ngpu=1\n", "billing.kinds: there is no kind 'gpu'; there are: node"),
        ('[hybrid]\nneeds="cores=100"\n', "a task needs 100 cores of a node, but a node has 64"),
        ('[hybrid]\nneeds="kind=gpu"\n', "there is no kind 'gpu'"),
        ('[hybrid]\nneeds="speed=2"\n', "give needs as in"),
        ("[qpu.failures]\nevery=0\n", "qpu.failures.every"),
        ("[hybrid]\nmalleable=true\n", "no table says how long its task takes"),
    ],
)
def test_impossible_sites_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        read_site(tmp_path / "site.toml")
    assert why in str(error.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('nodes = -1\nspeed = 3\nscheduler = "best"\n')
    with pytest.raises(UsageError, match=r"nodes: .*; scheduler: .*; speed: there is no such key"):
        read_site(tmp_path / "site.toml")
    (tmp_path / "site.toml").write_text("nodes = 2\n[hybrid]\nnodes = 3\nmalleable = true\n")
    with pytest.raises(UsageError, match=r"hybrid.nodes: .*; hybrid.malleable: "):
        read_site(tmp_path / "site.toml")


def test_a_job_has_to_fit_on_the_kind_that_it_uses(tmp_path: Path) -> None:
    kinds = 'kinds = ["cpu:4", "gpu:2,gpus=2"]\n[hybrid]\nnodes = 3\n'
    (tmp_path / "site.toml").write_text(kinds)
    assert read_site(tmp_path / "site.toml").hybrid.nodes == 3
    (tmp_path / "site.toml").write_text(f'{kinds}needs = "gpus=1,kind=gpu"\n')
    with pytest.raises(UsageError, match="a job of 3 nodes does not fit on 2"):
        read_site(tmp_path / "site.toml")


def test_a_run_whose_tasks_shared_nodes_is_predicted_as_such() -> None:
    (spans,) = played(KINDS, StrategySetup("workflow"), [on_kinds()])
    found = calibrate([spans])
    assert found.sizes == ((16, 0), (8, 4))
    job = job_of(spans, 2)
    assert [step.needs for step in job.steps[:3]] == [
        Needs(1, 0, kind="cores16gpus0"),
        WHOLE,
        Needs(2, 1, kind="cores8gpus4"),
    ]
    for strategy in ("static", "elastic"):
        (twin,) = played(found.site(2), StrategySetup(strategy), [job])
        (real,) = played(KINDS, StrategySetup(strategy), [on_kinds()])
        assert measure(twin).total == pytest.approx(measure(real).total)
        assert measure(twin).cores_held == pytest.approx(measure(real).cores_held)
        assert measure(twin).charged == pytest.approx(measure(real).charged)


@program
async def packed() -> None:
    """Many small tasks, then a payload and training on GPUs."""
    await classical(*(task(pretend, 10.0) for _ in range(24))).needs(cores=1)
    await quantum(Burst(60.0))
    await classical(*(task(pretend, 20.0) for _ in range(4))).needs(cores=2, gpus=1, kind="gpu")


def test_auto_knows_kinds_and_parts(tmp_path: Path) -> None:
    kinds = ["cpu:3,cores=8", "gpu:2,cores=8,gpus=4"]
    (tmp_path / "site.toml").write_text(f"kinds = {kinds}\n[billing]\ngpu = 9\n")
    for cluster, options in (
        (f"simulated:{tmp_path / 'site.toml'}", {}),
        ("simulated", {"kind": kinds}),
    ):
        packed.run(cluster=cluster, strategy="static", runs=tmp_path / "runs", **options)
        advised = choose(
            Spec(reference(packed), cluster=cluster, options=options), tmp_path / "runs"
        )
        assert advised.strategy in ("workflow", "elastic") and "/packed-" in advised.why


@program
async def wide() -> None:
    """Eight tasks at once."""
    await classical(*(task(pretend, 5.0) for _ in range(8)))


def test_auto_knows_how_many_nodes_there_are(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("nodes = 2\n")
    for cluster in (f"simulated:{tmp_path / 'site.toml'}", "simulated:2"):
        wide.run(cluster=cluster, strategy="elastic", runs=tmp_path / "runs")
        advised = choose(Spec(reference(wide), cluster=cluster), tmp_path / "runs")
        assert "/wide-" in advised.why


def test_auto_weighs_what_the_site_charges(tmp_path: Path) -> None:
    """As it was charged then, or as the user says now."""
    kinds, billing = ["cpu:3,cores=8", "gpu:2,cores=8,gpus=4"], "CPU=1,GRES/gpu=10"
    packed.run(
        cluster="simulated", strategy="static", runs=tmp_path, kind=kinds, billing=billing, name="a"
    )
    (spans,) = [run.intervals() for run in RunFolder.all(tmp_path)]
    found = calibrate([spans]).site(2)
    assert found.billing.kinds == {"cores8gpus0": 8.0, "cores8gpus4": 48.0}
    assert "[billing.kinds]\ncores8gpus0 = 8\ncores8gpus4 = 48\n" in calibrate([spans]).toml(2)
    cpu = BillingWeights.parse("CPU=1")
    assert charging(found, cpu).billing.kinds == {"cores8gpus0": 8.0, "cores8gpus4": 8.0}


def test_partitions_may_charge_differently() -> None:
    partitions = Partition("cpu", 2), Partition("gpu", 2, gpus=4)
    site = SiteModel(partitions=partitions, billing=Billing(kinds={"gpu": 6.0}))
    job = replace(loop(1, 10.0, 1.0), nodes=2, partition=1)
    (spans,) = played(site, StrategySetup("static"), [job])
    metrics = measure(spans)
    assert metrics.billing_held == pytest.approx(6 * metrics.nodes_held)
    assert metrics.charged == pytest.approx(metrics.nodes_held)


def test_a_percentile_of_the_waits_limits_what_a_site_offers() -> None:
    mix = Mix(jobs=12, days=0.01, nodes=1, tasks=(20.0,), quantum=30.0, alone=0.0, rounds=3)
    site = SiteModel(nodes=12, hybrid=mix, service=ServiceModel())
    offer, rows = best_offer_for_site(site, "workflow", 1e6, p95=True)
    free = next(row for row in rows if row.vqpus == offer)
    assert free.usual.mean > free.wait.mean > 0
    with_less = best_offer_for_site(site, "workflow", 0.9 * free.usual.mean, p95=True)
    chosen = next(row for row in with_less[1] if row.vqpus == with_less[0])
    fewest = min(row.vqpus for row in with_less[1])
    in_time = chosen.usual.mean <= 0.9 * free.usual.mean
    assert in_time or chosen.vqpus == fewest, "more of them are as late"
