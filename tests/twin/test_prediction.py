"""Predictions from runs, against what the same jobs then take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from qtide.backends.models.qpu_model import QpuModel
from qtide.backends.models.site_model import Delays, SiteModel
from qtide.core.ledger import Interval
from qtide.core.metrics import measure
from qtide.runs.spec import Spec
from qtide.strategies.strategy import strategy_names
from qtide.twin.calibration import calibrate, kept_agents
from qtide.twin.prediction import PredictionCase, expected_ledgers, predict
from qtide.twin.simulation import HybridJob, HybridStep, Simulation, StrategySetup, lessons
from tests.interfaces.cli.inside import printed, refused
from tests.twin.sites import played, wide

SITE = SiteModel(
    nodes=4, delays=Delays(grant=3.0, start=0.7, release=0.2), qpu=QpuModel(offload=2.0)
)


@pytest.mark.parametrize("strategy", ["static", "workflow", "elastic"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_another_strategy_and_number_of_jobs_is_predicted(strategy: str, jobs: int) -> None:
    known = [played(SITE, StrategySetup("workflow"), [wide()])[0]]
    found = predict(known, PredictionCase(strategy, jobs, 3, 4, jobs), draws=5)
    real = played(SITE, StrategySetup(strategy, jobs), [wide()] * jobs)
    total = max(span.end for spans in real for span in spans)
    held = sum(measure(spans).nodes_held for spans in real)
    assert found.wall.expected == pytest.approx(total, rel=0.02)
    assert found.node_seconds.expected == pytest.approx(held, rel=0.02)
    assert found.wall.low <= found.wall.expected <= found.wall.high


def test_jobs_that_know_their_program_ask_for_fewer_nodes() -> None:
    """A second run knows that three tasks are short, and that another function's are long."""
    steps = (
        HybridStep((60.0, 2.0, 2.0, 2.0), names=("read",) * 4),
        HybridStep(quantum=30.0),
        HybridStep((40.0,) * 4, names=("score",) * 4),
    )
    known = [played(SITE, StrategySetup("workflow"), [HybridJob(steps, nodes=4)])[0]]
    first, later = (
        predict(known, PredictionCase("elastic", 1, 4, 4, taught=taught), draws=1)
        for taught in (False, True)
    )
    assert later.wall.expected == pytest.approx(first.wall.expected - 3.7, abs=0.5)
    assert later.node_seconds.expected < first.node_seconds.expected - 5


def test_runs_that_differ_widen_the_interval() -> None:
    fast, slow = (
        replace(
            wide(),
            steps=tuple(
                replace(step, tasks=tuple(factor * each for each in step.tasks))
                for step in wide().steps
            ),
        )
        for factor in (0.9, 1.1)
    )
    one, two, usual = (
        played(SITE, StrategySetup("workflow"), [job])[0] for job in (fast, slow, wide())
    )
    narrow = predict([usual, usual, usual], PredictionCase("static", 1, 3, 4)).wall
    broad = predict([one, two, usual], PredictionCase("static", 1, 3, 4)).wall
    assert broad.high - broad.low > 2 * (narrow.high - narrow.low)


SHAPES = (
    (HybridStep((70.0, 5.0, 1.0)), HybridStep(quantum=30.0), HybridStep((50.0,))) * 3,
    (HybridStep((4.0,) * 4), HybridStep(quantum=2.0)) * 5,
    (HybridStep((20.0, 10.0)), HybridStep((1.0,)), HybridStep(quantum=60.0)) * 2,
    (HybridStep(quantum=8.0), HybridStep((6.0, 6.0, 3.0)), HybridStep((12.0,))) * 4,
)


def test_without_noise_another_case_is_what_the_twin_says() -> None:
    """What two runs show is enough: only decisions on a knife's edge fall otherwise."""
    warm = SiteModel(keeps_agents=True, delays=Delays(grant=0.005, start=0.05, release=0.01))
    slow = SiteModel(delays=Delays(grant=0.6, start=0.7, release=0.1, start_beside=0.15))
    off = []
    for number in range(60):
        random = Random(number)
        steps = tuple(
            replace(step, names=("read",) * len(step.tasks)) for step in random.choice(SHAPES)
        )
        site = replace(random.choice((warm, slow)), nodes=12)
        learn = (PredictionCase("static", 1, 2), PredictionCase("workflow", 1, 3))
        known = [exactly(each, steps, site)[0] for each in learn]
        name, jobs, nodes = random.choice(strategy_names()), random.choice((1, 2)), 4
        keeps = site.keeps_agents
        case = PredictionCase(name, jobs, nodes, 12, jobs, taught=True, keeps_agents=keeps)
        found = [span for spans in expected_ledgers(known, case) for span in spans]
        real = [span for spans in exactly(case, steps, site) for span in spans]
        pairs = [(measure(spans).total, measure(spans).nodes_held) for spans in (found, real)]
        if pairs[0] != pytest.approx(pairs[1], rel=0.015):
            off.append((number, case, pairs))
    assert len(off) <= 1, off


def exactly(
    case: PredictionCase, steps: tuple[HybridStep, ...], site: SiteModel
) -> list[list[Interval]]:
    """The ledgers of jobs that know their program, where nothing varies."""
    ledgers: list[list[Interval]] = []
    job = HybridJob(steps, nodes=case.nodes)
    setup = StrategySetup(case.strategy, case.vqpus)
    teach = lessons(job, site)
    simulation = Simulation(site, setup, lambda _, spans: ledgers.append(spans), teach=teach)
    simulation.run([job] * case.jobs)
    return ledgers


def noisy(case: PredictionCase, steps: tuple[HybridStep, ...], random: Random) -> list[Interval]:
    """All spans of one run on a machine where nothing takes the same time twice."""
    slow = random.lognormvariate(0, 0.02)

    def again(step: HybridStep) -> HybridStep:
        tasks = tuple(slow * each * random.lognormvariate(0, 0.03) for each in step.tasks)
        return replace(step, tasks=tasks)

    grant, start, release, step, offload = (
        each * random.lognormvariate(0, 0.15) for each in (3.0, 0.7, 0.2, 0.05, 0.5)
    )
    delays = Delays(grant=grant, start=start, release=release, step=step)
    site = SiteModel(nodes=case.site_nodes, delays=delays, qpu=QpuModel(offload=offload))
    jobs = [HybridJob(tuple(map(again, steps)), nodes=case.nodes) for _ in range(case.jobs)]
    ledgers = played(site, StrategySetup(case.strategy, case.jobs), jobs)
    return [span for spans in ledgers for span in spans]


def test_intervals_cover_nine_in_ten_unseen_runs() -> None:
    within, of = 0, 0
    for number in range(40):
        random = Random(number)
        steps = random.choice(SHAPES)
        known = [
            noisy(PredictionCase(name, 1, 3, 3), steps, random)
            for name in ("static", "workflow", "static")[: random.choice((1, 2, 3))]
        ]
        jobs, nodes = random.choice((1, 2, 3)), random.choice((2, 3, 4))
        case = PredictionCase(random.choice(strategy_names()), jobs, nodes, nodes, jobs)
        found = predict(known, case, draws=40)
        metrics = measure(noisy(case, steps, random))
        within += found.wall.low <= metrics.total <= found.wall.high
        within += found.node_seconds.low <= metrics.nodes_held <= found.node_seconds.high
        of += 2
    assert within >= 0.9 * of


def test_a_worthless_fit_is_named_with_the_run_that_mends_it() -> None:
    static = calibrate([played(SITE, StrategySetup("static"), [wide()])[0]])
    assert any(each.startswith("release: no run shows it") for each in static.doubts())
    assert "a single job under workflow" in static.advice()
    workflow = played(SITE, StrategySetup("workflow"), [wide()])[0]
    assert not calibrate([workflow, workflow]).advice()


@pytest.mark.parametrize(
    ("cluster", "options", "kept"),
    [("local:2", {}, True), ("local", {"cold": True}, False), ("slurm", {}, None)],
)
def test_clusters_say_whether_agents_outlive_a_grant(
    cluster: str, options: dict[str, Any], kept: bool | None
) -> None:
    assert kept_agents(Spec("mine.py", cluster=cluster, options=options)) is kept
    spans = played(SITE, StrategySetup("static"), [wide()])[0]
    assert calibrate([spans], keeps_agents=kept).keeps_agents is bool(kept)


def test_the_command_predicts_without_calling_a_task(here: Path) -> None:
    printed("run", "synthetic", "published", "--cluster", "simulated", "--name", "one")
    words = ("predict", "one", "--strategy", "static", "--nodes", 3)
    told = json.loads(printed(*words, "--jobs", 2, "--site-nodes", 6, "--json"))
    (found,) = told["predictions"]
    assert found["wall"]["expected"] == pytest.approx(997.2 + 120, rel=0.01)
    assert "from one (elastic); no task was called" in printed(*words)
    printed(
        "run", "clustering", "--blobs", 300, "--most", 1, "--cluster", "simulated", "--name", "two"
    )
    assert "different programs" in refused("predict", "one,two")


def test_a_program_is_predicted_from_its_runs(here: Path) -> None:
    run = ("run", "synthetic", "--cluster", "simulated", "--strategy", "workflow", "--name")
    printed(*run, "long", "published")
    shape = 'title = "small"\niterations = 2\n[[phase]]\ntasks = [1.0, 2.0]\n'
    (here / "small.toml").write_text(shape)
    printed(*run, "short", "small.toml")
    printed("compare", "synthetic", "published", "--cluster", "simulated", "--jobs", 2)

    def told(*words: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(printed("predict", *words, "--json"))
        return found

    words = ("synthetic", "published", "--strategy", "static", "--jobs", 1)
    assert told(*words)["runs"] == ["long"]  # two jobs at once say nothing about the site alone
    assert told("synthetic", "small.toml")["runs"] == ["short"]
    (here / "site.toml").write_text("nodes = 3\n")
    another = ("--cluster", "simulated:site.toml", "--jobs", 1, "--strategy", "workflow")
    printed("compare", "synthetic", "published", *another)
    (of_another,) = told(*words)["runs"]  # what ran elsewhere says nothing about that site
    assert of_another.startswith("compare-") and of_another.endswith("/workflow/job-1")
    (longer,) = told(*words, "--quantum", 300)["predictions"]
    assert longer["wall"]["expected"] == pytest.approx(997.2 + 4 * 180, rel=0.01)
    assert "no finished run of clustering" in refused("predict", "clustering")
    assert "not last" in refused("predict", "last", "published")
