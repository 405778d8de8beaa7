import numpy as np
import pytest

from qtide.apps.clustering.configurations import EXTRA_METHODS, MethodParameters
from qtide.apps.clustering.linkage import linkage_tree
from qtide.apps.clustering.methods import MOST_SPECTRAL, clusterings, extra_clustering
from qtide.core.errors import UsageError
from tests.apps.clustering.point_sets import same_partition


def two_groups(count: int) -> np.ndarray:
    points = np.random.default_rng(0).normal(0, 1, (count, 2))
    points[count // 2 :] += 50
    return points


@pytest.mark.parametrize("name", EXTRA_METHODS)
def test_extra_methods_find_two_groups(name: str) -> None:
    points = two_groups(400)
    labels = extra_clustering(name, points, MethodParameters(2, 1.0, 2))
    assert len(labels) == 400
    assert not set(labels[:200]) & (set(labels[200:]) - {-1})


def test_more_points_than_a_method_bears_follow_a_sample() -> None:
    count = MOST_SPECTRAL + 500
    labels = extra_clustering("spectral", two_groups(count), MethodParameters(2, 1.0, 2))
    assert same_partition(labels, np.repeat([0, 1], count // 2))


def test_an_unknown_method_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=f"'optics'; .* are {', '.join(EXTRA_METHODS)}"):
        extra_clustering("optics", two_groups(10), MethodParameters(2, 1.0, 2))


def test_an_iteration_has_its_three_methods_and_the_extra_ones() -> None:
    points = two_groups(60)
    found = clusterings(points, MethodParameters(2, 5.0, 2, 3, ("hdbscan",)), linkage_tree(points))
    assert list(found) == ["kmeans", "dbscan", "linkage", "hdbscan"]
    for name in ("kmeans", "dbscan", "linkage"):
        assert same_partition(found[name], np.repeat([0, 1], 30))


def test_fewer_points_than_clusters_asked_for_still_run() -> None:
    points = np.array([[0.0], [1.0], [9.0]])
    found = clusterings(points, MethodParameters(9, 1.5, 4, 2), linkage_tree(points))
    assert len(np.unique(found["kmeans"])) == len(np.unique(found["linkage"])) == 3
