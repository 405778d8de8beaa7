import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit, Sampler, distributions
from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.ansatz import Ansatz
from tests.apps.colouring.cutting.clusters import PUBLISHED, cut_circuits, fit, some_angles

THREE_CLUSTERS = GraphPartition(
    Graph.of(7, [(0, 1), (0, 2), (1, 2), (0, 3), (3, 4), (0, 5), (0, 6), (5, 6)]),
    (0,),
    ((1, 2), (3, 4), (5, 6)),
)


@given(cut_circuits(), st.integers(0, 2**32))
def test_without_shots_samples_are_those_of_the_uncut_state(circuit: CutCircuit, seed: int) -> None:
    angles = some_angles(circuit, seed)
    sampler = Sampler(circuit, circuit.probabilities(angles))
    counts = sampler.draw(2000, np.random.default_rng(seed))
    assert sum(counts.values()) == 2000
    # of 200 cases, none may be less likely than this by chance
    assert fit(counts, Ansatz(circuit.graph).probabilities(angles)) > 1e-5


def test_with_many_shots_samples_are_those_of_the_uncut_state() -> None:
    for partition in (PUBLISHED, THREE_CLUSTERS):
        circuit, rng = CutCircuit(partition, 1), np.random.default_rng(5)
        angles = some_angles(circuit, 5)
        sampler = Sampler(circuit, circuit.sampled(angles, 200_000, rng))
        fits = fit(sampler.draw(2000, rng), Ansatz(circuit.graph).probabilities(angles))
        assert fits > 0.01


def test_samples_of_other_angles_do_not_fit() -> None:
    circuit = CutCircuit(PUBLISHED, 1)
    sampler = Sampler(circuit, circuit.probabilities(some_angles(circuit, 1)))
    counts = sampler.draw(2000, np.random.default_rng(1))
    assert fit(counts, Ansatz(circuit.graph).probabilities(some_angles(circuit, 2))) < 1e-9


def test_few_shots_still_give_samples() -> None:
    circuit, rng = CutCircuit(THREE_CLUSTERS, 1), np.random.default_rng(0)
    for seed in range(20):
        angles = some_angles(circuit, seed)
        counts = Sampler(circuit, circuit.sampled(angles, 5, rng)).draw(100, rng)
        assert sum(counts.values()) == 100
        assert max(counts) < 2**7


def test_negative_entries_count_as_zero() -> None:
    found = distributions(np.array([[0.9, 0.3, -0.2], [0.2, 0.3, 0.5]]))
    assert np.allclose(found, [[0.75, 0.25, 0], [0.2, 0.3, 0.5]])
