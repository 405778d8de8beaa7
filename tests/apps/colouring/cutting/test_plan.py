from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit
from qtide.apps.colouring.cutting.cut_plan import CutBudget, GraphPartition, plan_cuts
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Ansatz
from qtide.backends.devices.profile import profile
from qtide.core.errors import UsageError
from tests.apps.colouring.cutting.clusters import PUBLISHED, partitions, some_angles


def test_a_clustered_graph_is_cut_at_its_separator() -> None:
    plan = plan_cuts(PUBLISHED.graph, 5)
    assert plan.partition == PUBLISHED
    assert (plan.cuts, plan.circuits, plan.qubits) == (1, 7, 5)


def test_a_graph_that_fits_is_not_cut() -> None:
    plan = plan_cuts(PUBLISHED.graph, 8)
    assert (plan.cuts, plan.circuits, len(plan.fragments)) == (0, 1, 1)


def test_components_need_no_cut() -> None:
    graph = Graph.of(9, [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8)])
    plan = plan_cuts(graph, 5)
    assert (plan.cuts, plan.circuits) == (0, 3)


@given(partitions(), st.integers(3, 6), st.integers(1, 2), st.integers(0, 2**32))
def test_every_plan_fits_the_device_and_gives_the_uncut_value(
    partition: GraphPartition, qubits: int, depth: int, seed: int
) -> None:
    try:
        plan = plan_cuts(partition.graph, qubits, depth, CutBudget(cuts=4, circuits=200))
    except UsageError:
        return
    circuit = CutCircuit(plan.partition, depth)
    assert max(len(each.wires) for each in circuit.fragments) <= qubits
    assert plan.cuts == circuit.cuts <= 4
    assert plan.circuits == sum(each.circuits for each in circuit.fragments) <= 200
    angles = some_angles(circuit, seed)
    cut = circuit.expectation(circuit.probabilities(angles))
    assert abs(cut - Ansatz(partition.graph).expectation(angles)) < 1e-10


@given(partitions())
def test_a_planted_partition_is_found_or_beaten(partition: GraphPartition) -> None:
    planted = CutCircuit(partition, 1)
    qubits = max(len(each.wires) for each in planted.fragments)
    plan = plan_cuts(partition.graph, qubits, 1, CutBudget(cuts=9, circuits=10**6))
    assert plan.circuits <= sum(each.circuits for each in planted.fragments)


def test_the_overhead_is_told_before_anything_runs() -> None:
    overhead = plan_cuts(PUBLISHED.graph, 5).overhead(profile("superconducting"), 1000)
    assert str(overhead) == (
        "1 cut, 2 fragments, 7 circuits per evaluation, sampling overhead 16, 3.8 s expected"
    )


def test_what_cannot_be_cut_is_refused() -> None:
    complete = Graph.of(8, combinations(range(8), 2))
    with pytest.raises(UsageError, match=r"no 3 vertices separate the graph of 8 vertices"):
        plan_cuts(complete, 5)


def test_what_would_explode_is_refused_with_its_cost() -> None:
    with pytest.raises(
        UsageError, match=r"takes 3 cuts and 84 circuits per evaluation, and at most 2 and 1,000"
    ):
        plan_cuts(PUBLISHED.graph, 6, 3, CutBudget(cuts=2))
