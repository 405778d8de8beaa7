import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.clustering.configurations import published_configuration
from qtide.apps.clustering.consensus import best_independent_set, consensus_labels
from qtide.apps.clustering.linkage import linkage_tree
from qtide.apps.clustering.methods import clusterings
from qtide.apps.clustering.overlap import OverlapGraph, overlap_graph, qubo
from qtide.apps.clustering.points import blobs
from qtide.apps.clustering.silhouette import (
    cluster_qualities,
    qualities,
    silhouette,
    silhouette_samples,
)


@st.composite
def random_clusterings(draw: st.DrawFn) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(draw(st.integers(0, 10**6)))
    most = draw(st.integers(1, 6))
    return {name: generator.integers(-1, most, 20) for name in "abc"[: draw(st.integers(1, 3))]}


POINTS = np.random.default_rng(0).normal(size=(20, 2))


@given(random_clusterings())
def test_nodes_overlap_exactly_where_they_share_a_point(found: dict[str, np.ndarray]) -> None:
    for graph in (
        overlap_graph(found),
        overlap_graph(found, qualities(POINTS, found)),
    ):
        members = [graph.members(node) for node in range(len(graph.nodes))]
        for first, one in enumerate(members):
            assert one.sum() == graph.nodes[first].size
            for second, other in enumerate(members):
                shares = first != second and bool((one & other).any())
                assert bool(graph.overlaps[first] >> second & 1) == shares


@given(random_clusterings())
def test_quality_joins_equal_clusters_and_keeps_all_of_them(found: dict[str, np.ndarray]) -> None:
    graph = overlap_graph(found, qualities(POINTS, found))
    shapes = {graph.members(node).tobytes() for node in range(len(graph.nodes))}
    assert len(shapes) == len(graph.nodes)
    clusters = sum(len(np.unique(labels)) for labels in found.values())
    assert sum(len(node.methods) for node in graph.nodes) == clusters


@given(random_clusterings())
def test_the_best_independent_set_is_the_ground_state(found: dict[str, np.ndarray]) -> None:
    graph = overlap_graph(found, qualities(POINTS, found))
    best = best_independent_set(graph.weights, graph.overlaps)
    model = qubo(graph)
    sample = {node: int(node in best) for node in range(len(graph.nodes))}
    assert model.energy(sample) == pytest.approx(-graph.weight(best))
    for node, value in sample.items():  # no single flip does better
        flipped = {**sample, node: 1 - value}
        assert model.energy(flipped) >= model.energy(sample) - 1e-12


def test_the_published_weights_are_sizes_and_the_penalty_counts_clusters() -> None:
    found = {"a": np.array([0, 0, 0, 1]), "b": np.array([0, 0, 1, 1])}
    graph = overlap_graph(found)
    assert graph.weights == pytest.approx([1.0, 1 / 3, 2 / 3, 2 / 3])
    model = qubo(graph)
    assert set(model.quadratic.values()) == {4.0}
    assert model.num_interactions == 3


def test_noise_is_a_cluster_like_any_other() -> None:
    graph = overlap_graph({"a": np.array([-1, 0, 0, -1])})
    assert [node.size for node in graph.nodes] == [2, 2]


def test_the_quality_of_few_points_is_their_exact_silhouette() -> None:
    labels = np.arange(20) % 3
    scores = silhouette_samples(POINTS, labels)
    expected = [scores[labels == cluster].mean() for cluster in range(3)]
    assert cluster_qualities(POINTS, labels) == pytest.approx(expected)


def best_score(graph: OverlapGraph, points: np.ndarray) -> float:
    chosen = best_independent_set(graph.weights, graph.overlaps)
    return silhouette(points, consensus_labels(points, graph, chosen))


@pytest.mark.parametrize("iteration", range(10))
def test_quality_never_scores_below_the_published_weights(iteration: int) -> None:
    points = blobs(4000)
    found = clusterings(points, published_configuration(iteration), linkage_tree(points))
    published = best_score(overlap_graph(found), points)
    assert best_score(overlap_graph(found, qualities(points, found)), points) >= published - 1e-12
