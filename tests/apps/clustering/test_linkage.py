import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from sklearn.cluster import AgglomerativeClustering

from qtide.apps.clustering.arrays import Points
from qtide.apps.clustering.linkage import cut, linkage_tree
from qtide.core.errors import UsageError
from tests.apps.clustering.point_sets import clouds, lattices, same_partition


@given(clouds(), st.data())
def test_cuts_equal_those_of_scikit_learn(points: Points, data: st.DataObject) -> None:
    clusters = data.draw(st.integers(1, len(points)))
    reference = AgglomerativeClustering(clusters, linkage="single").fit_predict(points)
    assert same_partition(cut(linkage_tree(points), clusters), reference)


@given(lattices(), st.data())
def test_ties_and_duplicates_leave_the_number_of_clusters_and_no_longer_edge_inside(
    points: Points, data: st.DataObject
) -> None:
    clusters = data.draw(st.integers(1, len(points)))
    tree = linkage_tree(points)
    labels = cut(tree, clusters)
    assert np.array_equal(np.unique(labels), np.arange(clusters))
    across = labels[tree.firsts] != labels[tree.seconds]
    assert across.sum() == clusters - 1
    assert tree.lengths[~across].max(initial=0.0) <= tree.lengths[across].min(initial=np.inf)


def test_ward_equals_scikit_learns() -> None:
    points = np.random.default_rng(3).normal(size=(300, 4))
    tree = linkage_tree(points, "ward")
    for clusters in (1, 2, 7, 40, 300):
        reference = AgglomerativeClustering(clusters, linkage="ward").fit_predict(points)
        assert same_partition(cut(tree, clusters), reference)


@pytest.mark.parametrize("linkage", ["centroid", "median"])
def test_other_linkages_equal_scipys(linkage: str) -> None:
    points = np.random.default_rng(4).normal(size=(120, 2))
    merges = hierarchy.linkage(points, linkage)
    for clusters in (1, 3, 120):
        reference = hierarchy.cut_tree(merges, clusters)[:, 0]
        assert same_partition(cut(linkage_tree(points, linkage), clusters), reference)


def test_an_unknown_linkage_is_named() -> None:
    with pytest.raises(UsageError, match="no linkage 'complete'; there are: single, ward"):
        linkage_tree(np.arange(3.0)[:, None], "complete")


def test_many_dimensions_use_the_scan_and_agree() -> None:
    points = np.random.default_rng(0).normal(size=(200, 30))
    reference = AgglomerativeClustering(5, linkage="single").fit_predict(points)
    assert same_partition(cut(linkage_tree(points), 5), reference)


@pytest.mark.parametrize("clusters", [0, 4])
def test_an_impossible_cut_is_refused(clusters: int) -> None:
    with pytest.raises(ValueError, match=f"3 points cannot be cut to {clusters}"):
        cut(linkage_tree(np.arange(3.0)[:, None]), clusters)
