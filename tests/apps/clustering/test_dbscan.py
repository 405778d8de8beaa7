import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.dbscan import dbscan
from qtide.apps.clustering.points import blobs
from tests.apps.clustering.point_sets import lattices


def reference(points: Points, eps: float, min_samples: int) -> Labels:
    found = DBSCAN(eps=eps, min_samples=min_samples, algorithm="kd_tree").fit_predict(points)
    return np.asarray(found, dtype=np.int64)


@given(lattices(), st.integers(1, 60), st.booleans(), st.integers(1, 8))
def test_labels_equal_those_of_scikit_learn(
    points: Points, square: int, whole: bool, min_samples: int
) -> None:
    # distances between integer coordinates are roots of integers: never near eps, or equal to it
    eps = float(math.isqrt(square)) if whole else math.sqrt(square + 0.5)
    assert (dbscan(points, eps, min_samples) == reference(points, eps, min_samples)).all()


@pytest.mark.parametrize("eps", [0.05, 0.3, 1.6, 4.5])
@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_labels_equal_on_a_larger_set(dimensions: int, eps: float) -> None:
    points = np.random.default_rng(dimensions).normal(0, 3, (1500, dimensions))
    assert (dbscan(points, eps, 10) == reference(points, eps, 10)).all()


def test_a_neighbour_at_eps_exactly_counts_and_so_does_the_point_itself() -> None:
    assert dbscan(np.array([[0.0], [1.0], [9.0]]), 1.0, 2).tolist() == [0, 0, -1]


def test_a_grid_too_fine_for_its_keys_gives_way_to_the_tree() -> None:
    points = np.array([[0.0, 0.0], [0.0, 1e-7], [1e7, 1e7], [0.0, 2e-7]])
    assert dbscan(points, 1.5e-7, 2).tolist() == [0, 0, -1, 0]


def test_the_published_clusters_are_found() -> None:
    labels = dbscan(blobs(4000), 1.603, 10)
    assert np.array_equal(np.unique(labels[labels >= 0]), np.arange(labels.max() + 1))
    assert (labels == reference(blobs(4000), 1.603, 10)).all()


@pytest.mark.parametrize(("eps", "min_samples"), [(0.0, 3), (math.nan, 3), (1.0, 0)])
def test_senseless_parameters_are_refused(eps: float, min_samples: int) -> None:
    with pytest.raises(ValueError, match="DBSCAN needs"):
        dbscan(np.arange(3.0)[:, None], eps, min_samples)
