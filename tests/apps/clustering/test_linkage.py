import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from qtide.apps.clustering.arrays import Points
from qtide.apps.clustering.linkage import linkage_tree, single_linkage
from tests.apps.clustering.point_sets import clouds, lattices, same_partition


@given(clouds(), st.data())
def test_cuts_equal_those_of_scikit_learn(points: Points, data: st.DataObject) -> None:
    clusters = data.draw(st.integers(1, len(points)))
    reference = AgglomerativeClustering(clusters, linkage="single").fit_predict(points)
    assert same_partition(single_linkage(linkage_tree(points), clusters), reference)


@given(lattices(), st.data())
def test_ties_and_duplicates_leave_the_number_of_clusters_and_no_longer_edge_inside(
    points: Points, data: st.DataObject
) -> None:
    clusters = data.draw(st.integers(1, len(points)))
    tree = linkage_tree(points)
    labels = single_linkage(tree, clusters)
    assert np.array_equal(np.unique(labels), np.arange(clusters))
    across = labels[tree.firsts] != labels[tree.seconds]
    assert across.sum() == clusters - 1
    assert tree.lengths[~across].max(initial=0.0) <= tree.lengths[across].min(initial=np.inf)


def test_many_dimensions_use_the_scan_and_agree() -> None:
    points = np.random.default_rng(0).normal(size=(200, 30))
    reference = AgglomerativeClustering(5, linkage="single").fit_predict(points)
    assert same_partition(single_linkage(linkage_tree(points), 5), reference)


@pytest.mark.parametrize("clusters", [0, 4])
def test_an_impossible_cut_is_refused(clusters: int) -> None:
    with pytest.raises(ValueError, match=f"cannot cut 3 points to {clusters}"):
        single_linkage(linkage_tree(np.arange(3.0)[:, None]), clusters)
