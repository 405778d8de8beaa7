from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.apps.colouring.cutting.cut_device import bound, prepare
from qtide.apps.colouring.cutting.cut_plan import GraphPartition, plan_cuts
from qtide.apps.colouring.cutting.cut_step import CutOptions, cut_circuits_step, cut_step
from qtide.apps.colouring.graph import Graph
from qtide.backends.devices.gate import star
from qtide.backends.leases.qpu import QpuFailed
from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import UsageError
from qtide.core.values import Packed, Values
from tests.apps.colouring.cutting.clusters import PUBLISHED, partitions
from tests.apps.colouring.phases import driven

GRAPH = PUBLISHED.graph
BEST = frozenset({1, 3, 4, 7})
SHORT = CutOptions(optimiser="spsa", rounds=1, shots=200)


class Star:
    """An emulated device that fails on chosen payloads, and remembers the sizes of all."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.device = star()
        self.failing = failing
        self.sizes: list[int] = []

    def __call__(self, payload: Any, shots: int, number: int) -> Any:
        self.sizes.append(len(payload))
        self.device.check(payload)
        if number in self.failing:
            raise QpuFailed(f"payload {number} is lost")
        return self.device.solve(payload, shots, number)


@settings(max_examples=25)
@given(partitions(), st.sampled_from(["gradient", "spsa", "none"]), st.integers(0, 100))
def test_simulated_fragments_give_maximal_independent_sets(
    partition: GraphPartition, optimiser: Any, seed: int
) -> None:
    graph = partition.graph
    options = CutOptions(optimiser=optimiser, shots=seed, rounds=2)
    try:
        found = driven(cut_step(graph, seed, options))
    except UsageError:
        return
    assert found
    for chosen in found:
        mask = sum(1 << vertex for vertex in chosen)
        free = [v for v in range(graph.size) if not graph.neighbours[v] & mask]
        assert set(free) == chosen  # nothing inside is joined, nothing outside fits


@pytest.mark.parametrize("shots", [0, 1000])
def test_the_largest_set_comes_first(shots: int) -> None:
    assert driven(cut_step(GRAPH, 0, CutOptions(shots=shots)))[0] == BEST


def test_the_same_seed_gives_the_same_sets() -> None:
    first, second = (driven(cut_step(GRAPH, 7, SHORT)) for _ in range(2))
    assert first == second


def test_circuits_on_the_five_qubit_star_find_the_largest_set_of_eight_vertices() -> None:
    device = Star()
    assert driven(cut_circuits_step(GRAPH, 1, SHORT), device)[0] == BEST
    assert device.sizes == [7, 7, 7]  # all circuits of an evaluation are one payload


def test_a_fragment_that_fails_is_run_again_alone() -> None:
    device = Star(failing=(2, 3))
    assert driven(cut_circuits_step(GRAPH, 1, SHORT), device)[0] == BEST
    # the second evaluation fails as a whole, then its first fragment once more
    assert device.sizes == [7, 7, 3, 3, 4, 7]


def test_a_fragment_that_always_fails_fails_the_step() -> None:
    device = Star(failing=tuple(range(1, 20)))
    with pytest.raises(QpuFailed, match="payload 4 is lost"):
        driven(cut_circuits_step(GRAPH, 1, SHORT), device)
    assert device.sizes == [7, 3, 3, 3]


def test_an_answer_that_lacks_circuits_counts_as_failed() -> None:
    device = Star()

    def forgetful(payload: Any, shots: int, number: int) -> Any:
        answers = device(payload, shots, number)
        return answers[:-1] if number == 1 else answers

    assert driven(cut_circuits_step(GRAPH, 1, SHORT), forgetful)[0] == BEST
    assert device.sizes == [7, 3, 4, 7, 7]


def test_a_refused_payload_is_not_tried_again() -> None:
    def refuses(payload: Any, shots: int, number: int) -> Any:
        assert number == 1
        raise PayloadRefused("no circuits today")

    with pytest.raises(PayloadRefused, match="no circuits today"):
        driven(cut_circuits_step(GRAPH, 1, SHORT), refuses)


def test_without_edges_there_is_nothing_to_run() -> None:
    for step in (cut_step, cut_circuits_step):
        assert driven(step(Graph(3, ()), 0)) == [frozenset({0, 1, 2})]
        assert driven(step(Graph(0, ()), 0)) == [frozenset()]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (CutOptions(optimiser="gradient"), "have no gradient"),
        (CutOptions(optimiser="none", shots=0), "give the number of shots"),
        (
            CutOptions(optimiser="none", device="annealer"),
            "need a device that takes them; --qpu gate",
        ),
    ],
)
def test_what_a_device_cannot_do_is_said_in_a_sentence(options: CutOptions, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        driven(cut_circuits_step(GRAPH, 0, options))


def test_fragments_too_large_to_simulate_are_refused() -> None:
    device = {"qubits": list(range(20)), "connections": [], "gates": []}
    path = Graph.of(18, [(n, n + 1) for n in range(17)])
    with pytest.raises(UsageError, match="at most 14 qubits, not 18; name a smaller device"):
        driven(cut_step(path, 0, CutOptions(device=device)))


def test_prepared_circuits_can_be_stored_in_a_journal(tmp_path: Path) -> None:
    values = Values(tmp_path)
    angles, circuits = prepare(plan_cuts(GRAPH, 5), SHORT)
    stored = Packed.from_json(values.pack((angles, circuits)).as_json())
    again = values.unpack(stored)
    assert np.array_equal(again[0], angles)
    for before, after in zip(circuits, again[1], strict=True):
        assert bound(after, angles) == bound(before, angles)


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="depth is at least 1, not 0"):
        CutOptions(depth=0)
    with pytest.raises(UsageError, match="there is no optimiser 'adam'; there are: gradient, spsa"):
        CutOptions(optimiser="adam")  # type: ignore[arg-type]
