import random
from itertools import combinations

import pytest
from hypothesis import given

from qtide.apps.clustering.consensus import best_independent_set, gap
from qtide.apps.clustering.overlap import OverlapGraph
from tests.apps.clustering.overlap_graphs import graph_of, independent, overlap_graphs


def brute_force(graph: OverlapGraph) -> float:
    nodes = range(len(graph.nodes))
    subsets = (chosen for size in range(len(nodes) + 1) for chosen in combinations(nodes, size))
    return max(graph.weight(chosen) for chosen in subsets if independent(graph, chosen))


@given(overlap_graphs())
def test_it_equals_brute_force(graph: OverlapGraph) -> None:
    best = best_independent_set(graph.weights, graph.overlaps)
    assert independent(graph, best)
    assert graph.weight(best) == pytest.approx(brute_force(graph))


def test_sixty_nodes_of_four_methods_are_no_trouble() -> None:
    generator = random.Random(1)
    weights = [generator.random() for _ in range(60)]
    edges = {
        (i, j) for j in range(60) for i in range(j) if i % 4 != j % 4 and generator.random() < 0.2
    }
    graph = graph_of(weights, edges)
    best = best_independent_set(graph.weights, graph.overlaps)
    assert independent(graph, best)
    assert gap(graph, best) == 0.0


def test_the_gap_is_the_missing_share_of_the_weight() -> None:
    graph = graph_of([1.0, 0.5, 0.5], {(0, 1)})
    assert gap(graph, (1, 2)) == pytest.approx(1 / 3)


def test_nodes_without_weight_are_left_out() -> None:
    assert best_independent_set([0.0, -1.0, 2.0], [0, 0, 0]) == (2,)
