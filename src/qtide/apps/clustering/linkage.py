"""Linkage trees: built once per run, cut many times, in memory linear in the number of points.

Single linkage uses the Euclidean minimum spanning tree. The other linkages use fastcluster, which
stores no distance matrix but takes time quadratic in the number of points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import quitefastmst

from qtide.apps.clustering.arrays import Indices, Labels, Numbers, Points, compacted
from qtide.apps.clustering.dbscan import flatten, join_all
from qtide.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class LinkageTree:
    """Merges in order: one point of each of the two merged clusters, and the height."""

    firsts: Indices
    seconds: Indices
    lengths: Numbers

    @property
    def points(self) -> int:
        """Number of points that the tree spans."""
        return len(self.lengths) + 1


LINKAGES = ("single", "ward", "centroid", "median")
MOST_TREE_DIMENSIONS = 8  # measured: beyond this, Prim's plain scan beats the k-d tree


def linkage_tree(points: Points, linkage: str = "single") -> LinkageTree:
    """Build the tree of at least two points by one of the LINKAGES."""
    if linkage == "single":
        return _spanning_tree(points)
    if linkage not in LINKAGES:
        raise UsageError(f"there is no linkage {linkage!r}; there are: {', '.join(LINKAGES)}")
    import fastcluster

    return _representatives(fastcluster.linkage_vector(points, method=linkage))


def _spanning_tree(points: Points) -> LinkageTree:
    if points.shape[1] == 1:
        return _tree_on_a_line(points[:, 0])
    tall = points.shape[1] > MOST_TREE_DIMENSIONS
    before = quitefastmst.omp_set_num_threads(1)
    try:
        lengths, edges = quitefastmst.mst_euclid(
            np.ascontiguousarray(points), algorithm="brute" if tall else "auto"
        )
    finally:
        quitefastmst.omp_set_num_threads(before)
    return LinkageTree(edges[:, 0].astype(np.int64), edges[:, 1].astype(np.int64), lengths)


def cut(tree: LinkageTree, clusters: int) -> Labels:
    """Cut the tree into exactly `clusters` clusters, numbered by their first points."""
    if not 1 <= clusters <= tree.points:
        raise ValueError(f"A linkage tree of {tree.points} points cannot be cut to {clusters}.")
    kept = tree.points - clusters
    parents = np.arange(tree.points)
    join_all(parents, tree.firsts[:kept], tree.seconds[:kept])
    flatten(parents)
    return compacted(parents)[0]


def _representatives(merges: Numbers) -> LinkageTree:
    """Convert merges of clusters to merges of points; any member represents its cluster."""
    number = len(merges) + 1
    members = list(range(number))
    for first, _ in merges[:, :2].astype(np.int64).tolist():
        members.append(members[first])
    stands = np.array(members)[merges[:, :2].astype(np.int64)]
    return LinkageTree(stands[:, 0], stands[:, 1], merges[:, 2].copy())


def _tree_on_a_line(values: Numbers) -> LinkageTree:
    """Build the tree in one dimension, a sorted chain; the library needs at least two."""
    order = np.argsort(values, kind="stable")
    lengths = np.diff(values[order])
    rank = np.argsort(lengths, kind="stable")
    return LinkageTree(order[:-1][rank], order[1:][rank], lengths[rank])
