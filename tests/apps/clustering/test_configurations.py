import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtide.apps.clustering.arrays import Points
from qtide.apps.clustering.configurations import MethodParameters, published_configuration, search
from qtide.apps.clustering.points import blobs
from tests.apps.clustering.point_sets import clouds, lattices


def test_the_published_table_repeats_after_ten_rows() -> None:
    assert published_configuration(0) == MethodParameters(9, 4.469, 4, 10)
    assert published_configuration(9) == MethodParameters(5, 1.776, 4, 10)
    assert published_configuration(13) == published_configuration(3)


@given(st.one_of(lattices(), clouds()), st.integers(0, 30))
def test_every_configuration_of_a_search_can_be_run(points: Points, iteration: int) -> None:
    if (points == points[0]).all():
        points[0] += 1.0
    found = search(points).configuration(iteration)
    assert 1 <= found.kmeans <= len(points)
    assert 1 <= found.linkage <= len(points)
    assert 0 < found.eps < np.inf
    assert 1 <= found.min_samples <= 10


def test_a_search_depends_on_points_and_seed_alone() -> None:
    points = blobs(2000)
    assert search(points, seed=5) == search(points, seed=5)
    assert search(points, extras=("hdbscan",)).configuration(0).extras == ("hdbscan",)


def test_eps_follows_the_scale_of_the_data() -> None:
    points = blobs(2000)
    small, large = search(points).configuration(2), search(points * 1000).configuration(2)
    assert large.eps == pytest.approx(small.eps * 1000)


def test_ten_iterations_explore_different_parameters() -> None:
    found = [search(blobs(2000)).configuration(iteration) for iteration in range(10)]
    assert len({configuration.eps for configuration in found}) == 10
    assert len({configuration.kmeans for configuration in found}) >= 6
