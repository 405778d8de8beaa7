import numpy as np
import pytest

from qtide.apps.clustering.methods import kmeans
from qtide.apps.clustering.points import blobs
from tests.apps.clustering.point_sets import same_partition


def test_the_seed_decides_the_clusters() -> None:
    points = blobs(600)
    assert (kmeans(points, 9, seed=3) == kmeans(points, 9, seed=3)).all()


def test_separate_groups_are_found() -> None:
    points = np.concatenate(
        [np.random.default_rng(0).normal(place, 1, (50, 2)) for place in (0, 99)]
    )
    assert same_partition(kmeans(points, 2), np.repeat([0, 1], 50))


def test_fewer_distinct_points_than_clusters_give_fewer_clusters() -> None:
    labels = kmeans(np.repeat([[0.0], [1.0]], 5, axis=0), 4)
    assert same_partition(labels, np.repeat([0, 1], 5))


@pytest.mark.parametrize("clusters", [0, 4])
def test_an_impossible_number_of_clusters_is_refused(clusters: int) -> None:
    with pytest.raises(ValueError, match=f"cannot make {clusters} clusters of 3 points"):
        kmeans(np.arange(3.0)[:, None], clusters)
