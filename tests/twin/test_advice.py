from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import fmean

import pytest

from qtide.backends.models.background import Background
from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Delays, SiteModel
from qtide.backends.models.trace import Trace, write_swf
from qtide.core.ledger import Interval, What
from qtide.core.metrics import measure
from qtide.twin.advice import Arrival, Prices, advise, strategy_map, with_ratio
from qtide.twin.calibration import Fitted, calibrate, job_of
from qtide.twin.capacity import GrowthTarget, growth, mean_value_analysis, offer_by_formula
from qtide.twin.simulation import HybridJob, HybridStep, StrategySetup
from tests.twin.sites import BUSY, played, wide

SITE = SiteModel(nodes=3, delays=Delays(start=1.0))


def test_who_pays_for_nodes_is_not_advised_to_hold_them() -> None:
    advice = advise(wide(), SITE, {1: 10.0})
    assert advice.strategy == "elastic" and "next best" in advice.why
    static = next(each for each in advice.expected if each.strategy == "static")
    assert static.wall.low < static.wall.expected < static.wall.high


def test_who_pays_only_for_time_holds_everything_where_requests_wait() -> None:
    advice = advise(wide(), SITE, {1: 600.0}, Prices(node=0.0, qpu=0.0))
    assert advice.strategy == "static"


def test_the_advice_flips_with_the_wait() -> None:
    prices = Prices(node=0.01, qpu=0.0)
    chart = strategy_map(wide(), SITE, [0.1, 10.0], [0.0, 600.0], prices)
    assert len({cell.strategy for row in chart for cell in row}) > 1
    for row, wait in zip(chart, (0.0, 600.0), strict=True):
        for cell, ratio in zip(row, (0.1, 10.0), strict=True):
            found = advise(
                with_ratio(wide(), ratio), SITE, {1: wait}, prices, spread=(1.0,)
            ).expected
            costs = {each.strategy: each.cost(prices) for each in found}
            own = costs.pop(cell.strategy)
            assert cell.margin == pytest.approx(max(0.0, min(costs.values()) / own - 1))


def test_a_ratio_is_that_of_quantum_to_classical_time() -> None:
    job = with_ratio(wide(), 2.0)
    assert job.quantum == pytest.approx(2 * (job.shortest - job.quantum))


def test_sharing_is_what_mean_value_analysis_says() -> None:
    assert mean_value_analysis(1.0, 8.5, 8)[-1].occupancy == pytest.approx(0.737, abs=0.001)
    best = offer_by_formula(10.0, 90.0, 30.0)
    assert best.wait <= 30 < mean_value_analysis(10.0, 90.0, best.jobs + 1)[-1].wait


def test_a_second_qpu_buys_time() -> None:
    target = GrowthTarget(0.5, 0.2)
    one, two = (growth(1000, 30.0, target, qpus) for qpus in (1, 2))
    assert one.occupancy == pytest.approx(1000 * 30 / 86_400)
    assert one.wait == pytest.approx(30 * one.occupancy / (1 - one.occupancy))
    assert two.wait < one.wait and two.full_in > one.full_in
    assert growth(5000, 30.0, target, 1).wait == inf


def test_calibration_finds_the_parameters_of_the_site_again() -> None:
    qpu = QpuModel(offload=3.5)
    site = SiteModel(nodes=3, delays=Delays(grant=4.0, start=0.7, release=0.2), qpu=qpu)
    (spans,) = played(site, StrategySetup("workflow"), [wide()])
    found = calibrate([spans])
    fitted = {name: each.value for name, each in found.parameters.items()}
    assert fitted == pytest.approx(
        {"grant": 4.0, "start": 0.7, "release": 0.2, "step": 0.0, "offload": 3.5}
    )
    twin = played(found.site(3), StrategySetup("workflow"), [job_of(spans, 3), job_of(spans, 3)])
    real = played(site, StrategySetup("workflow"), [wide(), wide()])
    assert twin[-1][0].end == pytest.approx(real[-1][0].end)


def test_what_the_first_start_on_a_node_takes_longer_is_told_apart() -> None:
    """Static starts each node once, so its starts alone would all be taken for usual ones."""
    site = SiteModel(nodes=3, delays=Delays(start=0.5, cold=2.0))
    runs = [played(site, StrategySetup(name), [wide()])[0] for name in ("static", "workflow")]
    fitted = {name: each.value for name, each in calibrate(runs).parameters.items()}
    assert fitted["start"] == pytest.approx(0.5) and fitted["cold"] == pytest.approx(2.0)
    assert "cold" not in calibrate(runs[:1]).parameters


def test_what_a_start_takes_longer_beside_others_is_told_apart() -> None:
    """The job's phases have three tasks and one, so its nodes start together and alone."""
    site = SiteModel(nodes=3, delays=Delays(start=0.5, start_beside=0.2))
    (spans,) = played(site, StrategySetup("workflow"), [wide()])
    starts = sorted({round(each.seconds, 6) for each in spans if each.what == "starting"})
    assert starts == [0.5, 0.9]
    fitted = {name: each.value for name, each in calibrate([spans]).parameters.items()}
    assert fitted["start"] == pytest.approx(0.5)
    assert fitted["start_beside"] == pytest.approx(0.2)


def test_an_agent_that_is_kept_is_warm_for_the_next_job_too() -> None:
    site = SiteModel(nodes=1, keeps_agents=True, delays=Delays(cold=2.0))
    job = HybridJob((HybridStep((5.0,)),))
    ledgers = played(site, StrategySetup("static"), [job, job])
    cold = [each.seconds for spans in ledgers for each in spans if each.what == "starting"]
    assert cold == [2.0]


def test_what_a_task_imports_belongs_to_the_first_start_of_its_node() -> None:
    """Three nodes import once each; on two, the third task would not import again."""
    spans = [Interval("job", "run", "driver", 0.0, 10.0)]
    spans.append(Interval("job", "phase", "classical", 0.0, 5.0, "work", key="1"))
    for node in ("node/n1", "node/n2", "node/n3"):
        spans += [
            Interval("job", "held", node, 0.0, 10.0),
            Interval("job", "starting", node, 0.0, 0.5),
            Interval("job", "busy", node, 0.5, 5.0, "work"),
            Interval("job", "starting", node, 0.5, 2.0, "work"),
            Interval("job", "starting", node, 6.0, 6.25),
        ]
    found = calibrate([spans])
    assert job_of(spans, 3).steps[0].tasks == (3.0, 3.0, 3.0)
    assert found.tasks["work"].value == 3.0
    assert found.parameters["start"].value == 0.25
    assert found.parameters["cold"].value == 1.75


@pytest.mark.parametrize("strategy", ["workflow", "malleable"])
def test_what_idles_beside_a_longer_task_is_no_release(strategy: str) -> None:
    """Nodes are given back when the longest task of their phase has ended, maybe on another one."""
    job = HybridJob((HybridStep((60.0, 2.0, 2.0)), HybridStep(quantum=30.0)) * 4, nodes=3)
    site = replace(SITE, delays=replace(SITE.delays, release=0.2))
    (spans,) = played(site, StrategySetup(strategy), [job])
    release = calibrate([spans]).parameters["release"]
    assert release.value == pytest.approx(0.2)
    assert not release.doubt


def test_a_calibration_is_a_site_file() -> None:
    (spans,) = played(SITE, StrategySetup("workflow"), [replace(wide(), nodes=3)])
    text = calibrate([spans]).toml(3)
    assert "[delays]\ngrant = 0  #" in text and "[qpu]\noffload" in text


def test_a_fit_that_says_nothing_is_named_with_what_would_mend_it() -> None:
    """Static holds its nodes to the end: their idle time is no release."""
    (spans,) = played(SITE, StrategySetup("static"), [wide()])
    found = calibrate([spans])
    assert found.parameters["release"].samples == 0 and found.parameters["release"].value == 0
    assert "release: no run shows it" in found.doubts()
    assert "under workflow" in found.advice()
    assert "doubtful: no run shows it" in found.toml(3)
    (better,) = played(SITE, StrategySetup("workflow"), [wide()])
    assert not any(each.startswith("release") for each in calibrate([spans, better]).doubts())
    assert Fitted(0.41, 5.2, 9).doubt == "0.41 ± 5.2 s says nothing"


def test_a_request_that_waits_gets_a_node_that_its_job_gave_back() -> None:
    """One node is free, the others are not soon: nobody waits with one that it could have."""
    rounds = (HybridStep((77.3, 4.6, 0.2)), HybridStep(quantum=120.0), HybridStep((52.0,)))
    site = replace(SITE, waits={1: 0.0, 3: 28_900.0})
    (spans,) = played(site, StrategySetup("elastic"), [HybridJob(rounds * 4, nodes=3)])
    assert measure(spans).total < 1.1 * 4 * (77.3 + 4.6 + 0.2 + 120 + 52)


@pytest.mark.parametrize(("later", "keeps"), [(0.01, True), (0.9, False)])
def test_nodes_that_start_faster_when_granted_again_are_seen(later: float, keeps: bool) -> None:
    def span(what: What, lane: str, start: float, end: float, label: str = "") -> Interval:
        return Interval("job", what, lane, start, end, label)

    spans = [
        span("starting", "node/n1", 0.0, 1.0),
        span("busy", "node/n1", 1.0, 5.0, "work"),
        span("starting", "node/n1", 10.0, 10.0 + later),
    ]
    found = calibrate([spans])
    assert found.keeps_agents == keeps == found.site(3).keeps_agents
    assert ("keeps_agents = true" in found.toml(3)) == keeps


def test_tasks_beside_a_payload_stay_beside_it() -> None:
    job = HybridJob((HybridStep((80.0, 60.0), 100.0), HybridStep((5.0,))), nodes=2)
    assert job.shortest == 105 and job.quantum == 100 and job.classical == 85
    (spans,) = played(SiteModel(nodes=2), StrategySetup("workflow"), [job])
    assert measure(spans).total == pytest.approx(105)
    found = job_of(spans, 2).steps
    assert [(step.tasks, step.quantum) for step in found] == [
        (step.tasks, step.quantum) for step in job.steps
    ]


def test_a_wait_is_a_queue_in_which_patience_runs_out(tmp_path: Path) -> None:
    """Two of three nodes are busy for 400 s: malleable goes on with the one that is free."""
    job = HybridJob((HybridStep((20.0, 20.0, 20.0)), HybridStep(quantum=10.0)), nodes=3)
    (planned,) = advise(job, SITE, {1: 0.0, 3: 400.0}, names=["malleable"], spread=(1.0,)).expected
    write_swf(tmp_path / "others.swf", Trace.of([(0.0, 2, 400.0, 400.0, 1)]), 3)
    busy = replace(SITE, background=Background(trace=str(tmp_path / "others.swf")))
    later = replace(job, submit=10.0)
    (spans,) = played(busy, StrategySetup("malleable"), [later])
    metrics = measure(spans)
    assert planned.wall.expected == pytest.approx(metrics.total) and metrics.total < 100
    assert planned.node_seconds.expected == pytest.approx(metrics.nodes_held)


def test_waits_are_by_the_nodes_that_the_job_then_holds() -> None:
    steps = (HybridStep((20.0,)), HybridStep((20.0, 20.0)), HybridStep((20.0, 20.0, 20.0)))
    site = replace(SITE, waits={1: 0.0, 2: 30.0, 3: 50.0})
    walls = {
        step: advise(HybridJob((step,), nodes=3), site, names=["workflow"], spread=(1.0,))
        .expected[0]
        .wall.expected
        for step in steps
    }
    assert list(walls.values()) == [21.0, 51.0, 71.0]


def test_advice_for_a_site_with_a_queue_is_what_its_simulation_favours() -> None:
    prices = Prices(node=1.0, qpu=0.0)
    advice = advise(wide(), BUSY, prices=prices)
    walls = {each.strategy: each.wall for each in advice.expected}
    assert max(each.high for each in walls.values()) > 500  # others are in the way
    jobs = [wide(600.0 * number) for number in range(40)]
    costs = {}
    for name in walls:
        found = [measure(spans) for spans in played(BUSY, StrategySetup(name), jobs)]
        costs[name] = fmean(each.total + each.nodes_held for each in found)
    assert costs[advice.strategy] <= 1.05 * min(costs.values())


def test_several_jobs_wait_for_each_other() -> None:
    one, two = (
        advise(wide(), SITE, names=["static"], arrival=Arrival(number)).expected[0].wall.expected
        for number in (1, 2)
    )
    assert two == pytest.approx(1.5 * one)


def test_jobs_that_know_their_program_are_advised_as_such() -> None:
    first, later = (
        advise(wide(), SITE, names=["elastic"], arrival=Arrival(taught=taught)).expected[0]
        for taught in (False, True)
    )
    assert later.node_seconds.expected < first.node_seconds.expected
    assert later.wall.expected <= first.wall.expected


def test_jobs_at_one_moment_do_not_meet_those_at_another() -> None:
    """Waits on a full site are longer than the time from one of the moments to the next."""
    assert BUSY.background.generate is not None
    full = replace(BUSY.background.generate, mean_run=6000.0)
    site = replace(BUSY, background=Background(generate=full))
    (found,) = advise(wide(), site, names=["static"]).expected
    last = float(full.trace().submit[-1])
    walls = []
    for share in (0.15, 0.5, 0.325, 0.675, 0.2375, 0.5875, 0.4125, 0.7625):
        ((*_, spans),) = [played(site, StrategySetup("static"), [wide(share * last)])]
        walls.append(measure(spans).total)
    assert max(walls) > last / 16
    assert found.wall.low <= min(walls) and max(walls) <= found.wall.high
