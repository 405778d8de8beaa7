"""Single linkage through the Euclidean minimum spanning tree: built once a run, cut many times."""

from __future__ import annotations

import numpy as np
import quitefastmst

from qtide.apps.clustering.arrays import Labels, Numbers, Points, compacted
from qtide.apps.clustering.forest import flatten, join_all
from qtide.apps.clustering.tree import LinkageTree

MOST_TREE_DIMENSIONS = 8  # measured: from here on Prim's plain scan beats the k-d tree


def linkage_tree(points: Points, *, threads: int = 1) -> LinkageTree:
    """The minimum spanning tree of at least two points, in memory linear in their number."""
    if points.shape[1] == 1:
        return _tree_on_a_line(points[:, 0])
    tall = points.shape[1] > MOST_TREE_DIMENSIONS
    before = quitefastmst.omp_set_num_threads(threads)
    try:
        lengths, edges = quitefastmst.mst_euclid(
            np.ascontiguousarray(points), algorithm="brute" if tall else "auto"
        )
    finally:
        quitefastmst.omp_set_num_threads(before)
    return LinkageTree(edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64), lengths)


def single_linkage(tree: LinkageTree, clusters: int) -> Labels:
    """The labels of a cut to exactly `clusters` clusters, numbered by their first points."""
    if not 1 <= clusters <= tree.points:
        raise ValueError(f"Single linkage cannot cut {tree.points} points to {clusters} clusters.")
    kept = tree.points - clusters
    parents = np.arange(tree.points)
    join_all(parents, tree.firsts[:kept], tree.seconds[:kept])
    flatten(parents)
    return compacted(parents)[0]


def _tree_on_a_line(values: Numbers) -> LinkageTree:
    """In one dimension the tree is the sorted chain; the library starts at two."""
    order = np.argsort(values, kind="stable")
    lengths = np.diff(values[order])
    rank = np.argsort(lengths, kind="stable")
    return LinkageTree(order[:-1][rank], order[1:][rank], lengths[rank])
