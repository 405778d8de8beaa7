import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.clustering.consensus import Repair, consensus_labels, repaired
from qtide.apps.clustering.overlap import OverlapGraph, overlap_graph
from tests.apps.clustering.overlap_graphs import graph_of, independent, overlap_graphs


@given(overlap_graphs(), st.sets(st.integers(0, 9)))
def test_repaired_answers_are_independent_and_maximal(
    graph: OverlapGraph, answer: set[int]
) -> None:
    answer &= set(range(len(graph.nodes)))
    final, repair = repaired(graph, answer)
    assert independent(graph, final)
    for node in set(range(len(graph.nodes))) - set(final):
        assert not independent(graph, (*final, node))
    assert set(final) == (answer - set(repair.dropped)) | set(repair.added)


@given(overlap_graphs(), st.sets(st.integers(0, 9)))
def test_repairing_twice_changes_nothing_more(graph: OverlapGraph, answer: set[int]) -> None:
    final, _ = repaired(graph, answer & set(range(len(graph.nodes))))
    assert repaired(graph, final) == (final, Repair((), ()))


def test_the_heavier_of_an_overlapping_pair_stays() -> None:
    final, repair = repaired(graph_of([0.4, 0.9, 0.5], {(0, 1)}), [0, 1])
    assert final == (1, 2)
    assert repair == Repair(dropped=(0,), added=(2,))
    assert repair.needed


def test_uncovered_points_go_to_the_nearest_chosen_centroid() -> None:
    points = np.array([[0.0], [1.0], [4.0], [9.0], [10.0]])
    graph = overlap_graph({"one": np.array([0, 0, 1, 2, 2])})
    assert consensus_labels(points, graph, (0, 2)).tolist() == [0, 0, 0, 1, 1]


def test_no_chosen_cluster_is_refused() -> None:
    graph = overlap_graph({"one": np.zeros(3, dtype=np.int64)})
    with pytest.raises(ValueError, match="at least one"):
        consensus_labels(np.arange(3.0)[:, None], graph, ())
