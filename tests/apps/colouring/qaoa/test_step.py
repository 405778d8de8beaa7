from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa.angles import descend, drive, spsa, start_angles
from qtide.apps.colouring.qaoa.ansatz import Ansatz
from qtide.apps.colouring.qaoa.qaoa_options import QaoaOptions, independent_sets
from qtide.apps.colouring.qaoa.qaoa_step import qaoa_circuits_step, qaoa_step
from qtide.backends.devices.gate import star
from qtide.core.errors import UsageError
from tests.apps.colouring.phases import driven
from tests.apps.colouring.qaoa.graphs import graphs

CYCLE = Graph.of(5, [(n, (n + 1) % 5) for n in range(5)])
PATHS = [Graph.of(size, [(n, n + 1) for n in range(size - 1)]) for size in (12, 14)]


@given(graphs(), st.dictionaries(st.integers(0, 63), st.integers(1, 9), min_size=1))
def test_whatever_was_measured_sets_are_independent_and_maximal(
    graph: Graph, counts: dict[int, int]
) -> None:
    counts = {string % (1 << graph.size): count for string, count in counts.items()}
    found = independent_sets(graph, counts, 5)
    assert 1 <= len(found) <= 5
    assert [len(each) for each in found] == sorted(map(len, found), reverse=True)
    for chosen in found:
        mask = sum(1 << vertex for vertex in chosen)
        assert {v for v in range(graph.size) if not graph.neighbours[v] & mask} == chosen


def test_an_independent_set_stays_as_it_was_measured() -> None:
    path = Graph.of(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert independent_sets(path, {0b10101: 1, 0b01001: 2}, 9) == [{0, 2, 4}, {0, 3}]


@settings(max_examples=20)
@given(graphs(), st.sampled_from(["gradient", "spsa", "none"]), st.integers(1, 2))
def test_every_optimiser_gives_sets_and_the_same_for_the_same_seed(
    graph: Graph, optimiser: Any, depth: int
) -> None:
    options = QaoaOptions(optimiser=optimiser, depth=depth, rounds=2)
    found = driven(qaoa_step(graph, 3, options))
    assert found == driven(qaoa_step(graph, 3, options))
    assert found


def test_circuits_on_the_star_find_the_sets_of_a_cycle() -> None:
    options = QaoaOptions(optimiser="spsa", rounds=1)
    solve = star().solve
    found = driven(qaoa_circuits_step(CYCLE, 0, options), solve)
    assert {*found} == {frozenset({n, (n + 2) % 5}) for n in range(5)}


def test_a_graph_that_does_not_fit_the_device_is_refused() -> None:
    with pytest.raises(UsageError, match="5 qubits and the graph 12 vertices; cut the circuit"):
        driven(qaoa_circuits_step(PATHS[0], 0))


def test_similar_graphs_start_from_the_same_angles_and_already_near_their_best() -> None:
    for depth in (1, 2):
        first, second = (start_angles(path, depth, 2) for path in PATHS)
        assert np.array_equal(first, second)
        ansatz = Ansatz(PATHS[0])
        best = ansatz.expectation(descend(ansatz.gradient, first))
        uniform = ansatz.expectation(np.zeros(2))
        assert best <= ansatz.expectation(first) < uniform + 0.9 * (best - uniform)


def test_deeper_circuits_start_from_lower_values() -> None:
    ansatz = Ansatz(PATHS[0])
    values = [ansatz.expectation(start_angles(PATHS[0], depth, 2)) for depth in (1, 2, 3)]
    assert values == sorted(values, reverse=True)


def test_spsa_goes_downhill_without_a_gradient_despite_noise() -> None:
    ansatz, rng = Ansatz(PATHS[0]), np.random.default_rng(0)
    start = np.array([0.2, 0.2])
    found = drive(
        spsa(start, 60, seed=0, size=12), lambda at: ansatz.expectation(at) + rng.normal(0, 0.1)
    )
    best = ansatz.expectation(descend(ansatz.gradient, start))
    gained = ansatz.expectation(start) - ansatz.expectation(found)
    assert gained > 0.8 * (ansatz.expectation(start) - best)
