"""Nodes of several kinds in virtual time: what each strategy holds, and what it is charged.

What must always hold, on one kind and on two, is in `test_properties.py` and `test_drivers.py`.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from qtide.core.errors import NotEnoughNodes
from qtide.core.resources import Needs, NodeKind, Room
from qtide.interfaces.report.table import TableRow, headings
from qtide.runs.folder import RunFolder
from tests.strategies.random_program import planned

KINDS = ["cpu:3,cores=4", "gpu:2,cores=2,gpus=2"]
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
    made = planned.using(cluster="simulated", kind=KINDS, strategy=strategy, runs=tmp_path).run(
        json.dumps(HALF_AND_HALF)
    )
    held = {"cpu": 0.0, "gpu": 0.0}
    for each in RunFolder(tmp_path / made.name).intervals():
        if each.what == "held" and each.lane.startswith("node/"):
            held[each.lane[5:8]] += each.seconds
    assert held == pytest.approx({"cpu": cpu, "gpu": gpu}, abs=0.1)


def test_a_kind_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(NotEnoughNodes) as refused:
        planned.using(cluster="simulated", kind=KINDS, runs=tmp_path).run(
            json.dumps([["p", [[1.0, 1, 0, 0, "tpu"]]]])
        )
    assert str(refused.value) == (
        "the task work needs a node of kind 'tpu', but the cluster has: cpu (3 nodes with 4 cores, "
        "no GPU), gpu (2 nodes with 2 cores, 2 GPUs)"
    )


def test_impossible_needs_of_all_tasks_are_refused_before_anything_is_held(tmp_path: Path) -> None:
    sentence = "each task that says nothing itself needs 9 cores of a node, but a node has 4 cores"
    with pytest.raises(NotEnoughNodes, match=sentence):
        planned.using(
            cluster="simulated:2",
            cores=4,
            strategy="static",
            runs=tmp_path,
            needs="cores=9",
            name="refused",
        ).run("[]")
    assert {each.what for each in RunFolder(tmp_path / "refused").intervals()} == {"run"}


def test_tasks_that_all_need_another_part_are_packed_in_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in as many as there are pairs of them."""
    steps = Counter[str]()
    share, fits = NodeKind.share, Room.fits

    def counted_share(kind: NodeKind, needs: Needs) -> float:
        steps["share"] += 1
        return share(kind, needs)

    def counted_fits(room: Room, needs: Needs) -> bool:
        steps["fits"] += 1
        return fits(room, needs)

    monkeypatch.setattr(NodeKind, "share", counted_share)
    monkeypatch.setattr(Room, "fits", counted_fits)
    tasks = [[1.0, 1, 0, memory] for memory in range(1, 601)]
    kind = ["cpu:2,cores=8,memory=4000GB"]
    planned.using(cluster="simulated", kind=kind, runs=tmp_path).run(json.dumps([["p", tasks]]))
    assert steps.total() < 20 * len(tasks)


def test_what_the_site_charges_is_in_the_metrics_and_the_table(tmp_path: Path) -> None:
    plan = [["p", [[10.0, 2, 0, 0, "cpu"]]], ["p", [[5.0, 1, 1, 0, "gpu"]]]]
    made = planned.using(
        cluster="simulated", kind=KINDS, billing="CPU=1,GRES/gpu=10", runs=tmp_path
    ).run(json.dumps(plan))
    spans = RunFolder(tmp_path / made.name).intervals()
    rates = {each.lane[5:8]: each.rate for each in spans if each.what == "held"}
    assert rates == {"cpu": 4.0, "gpu": 22.0}
    metrics = made.metrics
    assert metrics.billing_held == pytest.approx(4.0 * 10 + 22.0 * 5)
    assert metrics.billing_busy == pytest.approx(2.0 * 10 + 11.0 * 5)
    assert metrics.charged == pytest.approx(metrics.billing_held / 4.0), "4 is a node of kind cpu"
    assert "charge" in headings([TableRow("elastic", 1, metrics)])
    site = tmp_path / "site.toml"
    site.write_text(f"kinds = {json.dumps(KINDS)}\n[billing]\nnode = 0\ncore = 1\ngpu = 10\n")
    there = planned.using(cluster=f"simulated:{site}", runs=tmp_path / "there")
    assert there.run(json.dumps(plan)).metrics.billing_held == metrics.billing_held
