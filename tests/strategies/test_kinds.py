"""Nodes of several kinds: what must always hold, in virtual time, and what each strategy holds."""

import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.backends.clusters.cluster import KindsCluster
from qtide.backends.clusters.simulated import Delays, Loss, SimulatedCluster
from qtide.backends.devices.annealer import Annealer
from qtide.backends.leases.emulated import EmulatedQpu
from qtide.core.ledger import Interval
from qtide.core.resources import NodeKind
from qtide.core.world.virtual import VirtualWorld
from qtide.interfaces.report.table import TableRow, headings
from qtide.runs.driver import Outcome, drive
from qtide.runs.folder import RunFolder
from qtide.runs.spec import Spec
from qtide.strategies.site import Site
from qtide.strategies.strategy import STRATEGIES
from tests.bench import INSTANT
from tests.core.invariant import check
from tests.strategies.arena import GRAVEYARD, LIMIT, folder
from tests.strategies.random_program import planned, quantum_step, seconds

CPU = NodeKind("cpu", 3, cores=4)
GPU = NodeKind("gpu", 2, cores=2, gpus=2)

part = st.tuples(
    seconds, st.integers(0, 2), st.just(0), st.just(0), st.sampled_from(["cpu", "gpu"])
)
gpu_part = st.tuples(seconds, st.integers(1, 2), st.integers(1, 2), st.just(0), st.just("gpu"))
phase = st.lists(st.one_of(part, gpu_part).map(list), min_size=1, max_size=7)
phase_step = phase.map(lambda each: ["p", each])
side = st.lists(st.one_of(phase_step, quantum_step), min_size=1, max_size=3)
steps = st.one_of(phase_step, phase_step, quantum_step, side.map(lambda each: ["t", each]))


@dataclass(frozen=True)
class KindsCase:
    strategies: list[str]
    plan: list[Any]
    delays: Delays
    losses: list[Loss]
    seed: int | None


loss = st.builds(
    Loss,
    at=st.floats(0, 60),
    node=st.sampled_from(["cpu1", "cpu2", "gpu1"]),
    back=st.floats(0, 50),
    answers=st.booleans(),
)
delay = st.sampled_from([0.0, 0.0, 0.3, 4.0])
cases = st.builds(
    KindsCase,
    strategies=st.lists(st.sampled_from(STRATEGIES.names()), min_size=1, max_size=6),
    plan=st.lists(steps, min_size=1, max_size=6),
    delays=st.builds(Delays, delay, delay, delay, delay),
    losses=st.lists(loss, max_size=2),
    seed=st.none() | st.integers(0, 99),
)


def create(root: Path, case: KindsCase) -> list[RunFolder]:
    program = "tests.strategies.random_program:planned"
    specs = [Spec(program, [json.dumps(case.plan)], each) for each in case.strategies]
    return [RunFolder.create(root, f"job-{n}", spec) for n, spec in enumerate(specs)]


def play_kinds(
    runs: Sequence[RunFolder], case: KindsCase, losses: Sequence[Loss], until: float = LIMIT
) -> list[Outcome]:
    world = VirtualWorld(case.seed)
    clusters = [
        SimulatedCluster(
            world,
            kind.count,
            case.delays,
            [each for each in losses if each.node.startswith(kind.name)],
            kind=kind,
        )
        for kind in (CPU, GPU)
    ]
    cluster = KindsCluster(clusters)
    site = Site(world, cluster, EmulatedQpu(world, Annealer(), INSTANT, 1))
    GRAVEYARD.append(world)

    async def main() -> list[Outcome]:
        outcomes = await world.all_of([drive(run, site, lambda *_: None) for run in runs])
        await world.sleep(case.delays.release + 1.0)
        await cluster.close()
        return outcomes

    outcomes = world.run(main(), until)
    GRAVEYARD.remove(world)
    assert all(not each.granted for each in clusters)
    return outcomes


def overfull(runs: Sequence[RunFolder]) -> list[str]:
    spans = [span for run in runs for span in run.intervals()]
    return [
        wrong
        for kind, other in ((CPU, GPU), (GPU, CPU))
        for wrong in check(_without(spans, other), kind.count, 1, kind=kind)
    ]


def _without(spans: Sequence[Interval], kind: NodeKind) -> list[Interval]:
    return [each for each in spans if not each.lane.startswith(f"node/{kind.name}")]


@given(cases)
def test_nobody_waits_for_ever_and_nothing_is_held_twice(case: KindsCase) -> None:
    with folder() as root:
        usual = KindsCase(["static"], case.plan, Delays(), [], None)
        (right,) = play_kinds(create(root / "expected", usual), usual, [])
        runs = create(root, case)
        outcomes = play_kinds(runs, case, case.losses)
        assert overfull(runs) == []
        assert right.error is None
        for outcome in outcomes:
            if outcome.error is not None:  # its tasks lost too many nodes
                (again,) = play_kinds([outcome.run], case, [])
                assert (again.error, again.value) == (None, right.value)
            else:
                assert outcome.value == right.value


@given(cases, st.floats(0, 60))
def test_a_killed_driver_resumes_on_all_kinds(case: KindsCase, death: float) -> None:
    with folder() as root:
        usual = KindsCase(["static"], case.plan, Delays(), [], None)
        (right,) = play_kinds(create(root / "expected", usual), usual, [])
        runs = create(root, case)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never ended
            with suppress(TimeoutError):
                play_kinds(runs, case, [], until=death)
        for run in runs:
            copy = RunFolder(root / f"{run.name}-copy")
            copy.path.mkdir()
            for file in run.path.iterdir():
                if file.is_file() and file.name != "ledger.jsonl":
                    (copy.path / file.name).write_bytes(file.read_bytes())
            (again,) = play_kinds([copy], case, [])
            assert (again.error, again.value) == (None, right.value)


HALF_AND_HALF = [
    ["p", [[10.0, 1, 0, 0, "cpu"]] * 8],
    ["q", 60.0],
    ["p", [[20.0, 1, 1, 0, "gpu"]] * 4],
]
"""Two CPU nodes for 10 s, the QPU for 60 s, two GPU nodes for 20 s."""


@pytest.mark.parametrize(
    ("strategy", "cpu", "gpu"),
    [
        ("static", 3 * 90.0, 2 * 90.0),
        ("workflow", 2 * 10.0, 2 * 20.0),
        ("elastic", 2 * 10.0, 2 * 20.0),
        ("malleable", 90.0 + 10.0, 2 * 20.0),
    ],
)
def test_each_strategy_holds_each_kind_as_it_says(
    tmp_path: Path, strategy: str, cpu: float, gpu: float
) -> None:
    case = KindsCase([strategy], HALF_AND_HALF, Delays(), [], None)
    runs = create(tmp_path, case)
    (outcome,) = play_kinds(runs, case, [])
    assert outcome.error is None
    held = {"cpu": 0.0, "gpu": 0.0}
    for each in runs[0].intervals():
        if each.what == "held" and each.lane.startswith("node/"):
            held[each.lane[5:8]] += each.seconds
    assert held == pytest.approx({"cpu": cpu, "gpu": gpu}, abs=0.1)


def test_a_kind_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    case = KindsCase(["elastic"], [["p", [[1.0, 1, 0, 0, "tpu"]]]], Delays(), [], None)
    (outcome,) = play_kinds(create(tmp_path, case), case, [])
    assert str(outcome.error) == (
        "the task work needs a node of kind 'tpu', but the cluster has: cpu (3 nodes with 4 cores, "
        "no GPU), gpu (2 nodes with 2 cores, 2 GPUs)"
    )


def test_what_the_site_charges_is_in_the_metrics_and_the_table(tmp_path: Path) -> None:
    kinds = ["cpu:3,cores=4", "gpu:2,cores=2,gpus=2"]
    plan = [["p", [[10.0, 2, 0, 0, "cpu"]]], ["p", [[5.0, 1, 1, 0, "gpu"]]]]
    made = planned.using(
        cluster="simulated", kind=kinds, billing="CPU=1,GRES/gpu=10", runs=tmp_path
    ).run(json.dumps(plan))
    spans = RunFolder(tmp_path / made.name).intervals()
    rates = {each.lane[5:8]: each.rate for each in spans if each.what == "held"}
    assert rates == {"cpu": 4.0, "gpu": 22.0}
    metrics = made.metrics
    assert metrics.billing_held == pytest.approx(4.0 * 10 + 22.0 * 5)
    assert metrics.billing_busy == pytest.approx(2.0 * 10 + 11.0 * 5)
    assert "billing-s" in headings([TableRow("elastic", 1, metrics)])
    site = tmp_path / "site.toml"
    site.write_text(f"kinds = {json.dumps(kinds)}\n[billing]\nnode = 0\ncore = 1\ngpu = 10\n")
    there = planned.using(cluster=f"simulated:{site}", runs=tmp_path / "there")
    assert there.run(json.dumps(plan)).metrics.billing_held == metrics.billing_held
