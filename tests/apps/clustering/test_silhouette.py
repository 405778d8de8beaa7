import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from qtide.apps.clustering.points import blobs
from qtide.apps.clustering.silhouette import (
    equal_parts,
    merged_silhouette,
    silhouette,
    silhouette_part,
    silhouette_samples,
)
from tests.apps.clustering.point_sets import Case, clouds, labelled, lattices


@given(labelled(st.one_of(lattices(), clouds())))
def test_it_equals_scikit_learn(case: Case) -> None:
    clusters = len(np.unique(case.labels))
    if clusters < 2:
        assert silhouette(case.points, case.labels) == -1.0
    elif clusters == len(case.points):
        assert silhouette(case.points, case.labels) == 0.0
    else:
        expected = metrics.silhouette_samples(case.points, case.labels)
        assert silhouette_samples(case.points, case.labels) == pytest.approx(expected, abs=1e-9)


@given(labelled(st.one_of(lattices(), clouds())), st.integers(1, 9))
def test_merged_parts_equal_the_whole_exactly(case: Case, count: int) -> None:
    parts = [
        silhouette_part(case.points, case.labels, start, stop)
        for start, stop in equal_parts(len(case.points), count)
    ]
    assert merged_silhouette(parts) == silhouette(case.points, case.labels)


def test_threads_change_nothing() -> None:
    points = blobs(1500)
    labels = np.arange(1500) % 7
    assert silhouette(points, labels, threads=2) == silhouette(points, labels)


def test_many_points_far_from_the_origin_keep_their_digits() -> None:
    points, labels = blobs(3000), np.arange(3000) % 3
    labels[points[:, 0] > 0] += 3
    far = points + 2.0**20
    expected = metrics.silhouette_score(far - 2.0**20, labels)
    assert silhouette(far, labels) == pytest.approx(expected, abs=1e-9)


def test_a_singleton_scores_zero() -> None:
    scores = silhouette_samples(np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1]))
    assert scores.tolist() == [0.8, 0.75, 0.0]


@given(st.integers(1, 100), st.integers(1, 20))
def test_parts_cover_all_points_once(points: int, count: int) -> None:
    covered = [place for start, stop in equal_parts(points, count) for place in range(start, stop)]
    assert covered == list(range(points))
