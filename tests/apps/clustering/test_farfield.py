import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.clustering.farfield import Certified, certified_silhouette, reaches
from qtide.apps.clustering.methods import kmeans
from qtide.apps.clustering.points import blobs
from qtide.apps.clustering.silhouette import silhouette
from tests.apps.clustering.point_sets import Case, clouds, labelled, lattices

small = st.one_of(lattices(3, 60), clouds(3, 400))


def assert_certified(case: Case, tolerance: float) -> Certified:
    found = certified_silhouette(case.points, case.labels, tolerance=tolerance)
    assert abs(found.score - silhouette(case.points, case.labels)) <= found.bound <= tolerance
    return found


@given(labelled(small), st.sampled_from([1e-2, 1e-4, 1e-6]))
def test_the_truth_lies_within_the_bound(case: Case, tolerance: float) -> None:
    assert_certified(case, tolerance)


@given(clouds(3, 400), st.integers(2, 6), st.sampled_from([1e-2, 1e-6]))
def test_the_truth_lies_within_the_bound_for_sensible_clusters(
    points: np.ndarray, clusters: int, tolerance: float
) -> None:
    if len(points) >= clusters:
        assert_certified(Case(points, kmeans(points, clusters)), tolerance)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_the_expansion_carries_most_of_a_larger_set(dimensions: int, tolerance: float) -> None:
    generator = np.random.default_rng(dimensions)
    points = generator.normal(0, 1, (4000, dimensions))
    points[2000:, 0] += 8
    points[:10] = points[10:20]
    case = Case(points, (np.arange(4000) // 2000 + (points[:, 0] > 9)).astype(np.int64))
    found = assert_certified(case, tolerance)
    assert found.bound > 1e-10  # otherwise everything was summed exactly


def test_more_dimensions_are_added_up_exactly() -> None:
    points = np.random.default_rng(0).normal(size=(60, 5))
    labels = np.arange(60) % 4
    assert certified_silhouette(points, labels).score == silhouette(points, labels)


def test_threads_change_nothing() -> None:
    points = blobs(2000)
    labels = kmeans(points, 7)
    assert certified_silhouette(points, labels, threads=2) == certified_silhouette(points, labels)


def test_a_threshold_the_bound_cannot_tell_from_the_score_is_decided_exactly() -> None:
    points = blobs(2000)
    labels = kmeans(points, 7)
    exact = silhouette(points, labels)
    assert reaches(points, labels, exact)[0]
    assert not reaches(points, labels, float(np.nextafter(exact, 1.0)))[0]


def test_a_clear_threshold_is_decided_by_the_bound() -> None:
    points = blobs(2000)
    labels = kmeans(points, 7)
    above, found = reaches(points, labels, 0.1)
    assert above
    assert found == certified_silhouette(points, labels)
    assert not reaches(points, labels, 0.99)[0]


def test_one_cluster_scores_minus_one() -> None:
    assert certified_silhouette(blobs(50), np.zeros(50, dtype=np.int64)).score == -1.0
