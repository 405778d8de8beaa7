import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit
from qtide.apps.colouring.qaoa.ansatz import Ansatz
from tests.apps.colouring.cutting.clusters import PUBLISHED, cut_circuits, some_angles

seeds = st.integers(0, 2**32)


@given(cut_circuits(), seeds)
def test_the_cut_expectation_value_is_that_of_the_uncut_state(
    circuit: CutCircuit, seed: int
) -> None:
    angles = some_angles(circuit, seed)
    cut = circuit.expectation(circuit.probabilities(angles))
    assert abs(cut - Ansatz(circuit.graph).expectation(angles)) < 1e-10


def test_one_cut_takes_seven_circuits_of_five_and_four_qubits() -> None:
    circuit = CutCircuit(PUBLISHED, 1)
    assert circuit.cuts == 1
    assert [len(each.wires) for each in circuit.fragments] == [5, 4]
    assert [each.circuits for each in circuit.fragments] == [3, 4]


def test_deeper_circuits_are_cut_once_per_layer() -> None:
    for depth in (1, 2, 3, 4):
        circuit = CutCircuit(PUBLISHED, depth)
        angles = some_angles(circuit, depth)
        assert circuit.cuts == depth
        cut = circuit.expectation(circuit.probabilities(angles))
        assert abs(cut - Ansatz(circuit.graph).expectation(angles)) < 1e-10


@given(cut_circuits(), seeds)
def test_probabilities_of_every_circuit_sum_to_one(circuit: CutCircuit, seed: int) -> None:
    for found in circuit.probabilities(some_angles(circuit, seed)):
        assert np.allclose(found.sum(axis=-1), 1, atol=1e-12)
        assert (found >= 0).all()


def deviations(depth: int, repetitions: int) -> np.ndarray:
    """Of estimates from shots, in standard errors."""
    circuit, rng = CutCircuit(PUBLISHED, depth), np.random.default_rng(depth)
    found = []
    for seed in range(repetitions):
        angles = some_angles(circuit, seed)
        estimate = circuit.estimate(circuit.sampled(angles, 1000, rng), 1000)
        exact = Ansatz(circuit.graph).expectation(angles)
        found.append((estimate.value - exact) / estimate.error)
    return np.array(found)


def test_values_from_shots_are_within_four_standard_errors() -> None:
    for depth in (1, 2):
        found = deviations(depth, 300)
        assert np.abs(found).max() < 4
        assert 0.85 < found.std() < 1.15  # the error is neither too large nor too small
        assert abs(found.mean()) < 0.25


def test_the_error_shrinks_with_the_root_of_the_shots() -> None:
    circuit = CutCircuit(PUBLISHED, 1)
    exact = circuit.probabilities(some_angles(circuit, 0))
    few, many = (circuit.estimate(exact, shots).error for shots in (100, 10_000))
    assert np.isclose(few, 10 * many)
