import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qiskit import QuantumCircuit
from qiskit.quantum_info import Statevector

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Ansatz
from qtide.core.errors import UsageError
from tests.apps.colouring.cutting.clusters import fit
from tests.apps.colouring.qaoa.graphs import graphs

depths = st.integers(1, 3)
seeds = st.integers(0, 2**32)


def random_angles(depth: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=2 * depth)


def by_qiskit(graph: Graph, penalty: int, angles: np.ndarray) -> np.ndarray:
    """The probabilities of the same circuit, gate by gate."""
    circuit = QuantumCircuit(graph.size)
    circuit.h(range(graph.size))
    for gamma, beta in zip(*np.split(angles, 2), strict=True):
        circuit.p(gamma, range(graph.size))
        for a, b in graph.edges:
            circuit.cp(-penalty * gamma, a, b)
        circuit.rx(2 * beta, range(graph.size))
    return np.array(Statevector(circuit).probabilities())


@given(graphs(), st.integers(1, 4))
def test_the_cost_counts_vertices_and_edges(graph: Graph, penalty: int) -> None:
    for string, cost in enumerate(Ansatz(graph, penalty).costs):
        chosen = {vertex for vertex in range(graph.size) if string >> vertex & 1}
        inside = sum({*edge} <= chosen for edge in graph.edges)
        assert cost == penalty * inside - len(chosen)


@given(graphs(), depths, seeds)
def test_probabilities_are_those_of_the_circuit(graph: Graph, depth: int, seed: int) -> None:
    ansatz, angles = Ansatz(graph, 3), random_angles(depth, seed)
    expected = by_qiskit(graph, 3, angles)
    assert np.allclose(ansatz.probabilities(angles), expected, atol=1e-12)
    assert np.isclose(ansatz.expectation(angles), expected @ ansatz.costs, atol=1e-10)


@pytest.mark.parametrize("size", [11, 12, 13])
def test_beyond_a_block_of_the_mixer_nothing_changes(size: int) -> None:
    graph = Graph.of(size, [(n, (n + 3) % size) for n in range(size)])
    angles = random_angles(2, size)
    found = Ansatz(graph).probabilities(angles)
    assert np.allclose(found, by_qiskit(graph, 2, angles), atol=1e-12)
    check_gradient(Ansatz(graph), angles)


@given(graphs(), depths, seeds)
def test_the_gradient_is_the_slope(graph: Graph, depth: int, seed: int) -> None:
    check_gradient(Ansatz(graph), random_angles(depth, seed))


def check_gradient(ansatz: Ansatz, angles: np.ndarray) -> None:
    value, slopes = ansatz.gradient(angles)
    assert np.isclose(value, ansatz.expectation(angles))
    for place, step in enumerate(1e-5 * np.eye(len(angles))):
        rise = ansatz.expectation(angles + step) - ansatz.expectation(angles - step)
        assert abs(slopes[place] - rise / 2e-5) < 1e-5 * ansatz.graph.size**2


def test_samples_follow_the_probabilities() -> None:
    graph = Graph.of(6, [(n, (n + 1) % 6) for n in range(6)])
    ansatz, angles = Ansatz(graph), random_angles(2, 0)
    strings, counts = np.unique(ansatz.samples(angles, 4000, seed=1), return_counts=True)
    often = dict(zip(strings.tolist(), counts.tolist(), strict=True))
    assert fit(often, ansatz.probabilities(angles)) > 0.01


@pytest.mark.parametrize("size", [0, 21])
def test_what_is_too_large_to_simulate_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match=f"for 1 to 20 vertices, not {size}; cut the circuit"):
        Ansatz(Graph(size, ()))
