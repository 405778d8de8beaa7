"""DBSCAN with scikit-learn's meaning and labels, in memory linear in the number of points.

A neighbour is at most eps away, a point counts itself, clusters are numbered by their first core
point, a border point takes the lowest cluster in reach, and noise is -1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from qtide.apps.clustering.arrays import Flags, Indices, Labels, Points
from qtide.apps.clustering.forest import flatten, join_all
from qtide.apps.clustering.grid import (
    Grid,
    border_clusters,
    core_flags,
    grid,
    joined_cells,
    neighbour_pairs,
)

NOISE = -1
MOST_GRID_DIMENSIONS = 3
NEIGHBOURS_AT_ONCE = 2_000_000  # 16 MB of indices


def dbscan(points: Points, eps: float, min_samples: int) -> Labels:
    """The cluster of every point, -1 for noise."""
    if not (math.isfinite(eps) and eps > 0) or min_samples < 1:
        raise ValueError(
            f"DBSCAN needs a finite eps above 0 and min_samples of at least 1,"
            f" not eps = {eps} and min_samples = {min_samples}."
        )
    cells = grid(points, eps) if points.shape[1] <= MOST_GRID_DIMENSIONS else None
    if cells is None:
        return _by_tree(points, eps, min_samples)
    return _by_grid(cells, eps, min_samples)


def _by_grid(cells: Grid, eps: float, min_samples: int) -> Labels:
    pairs = neighbour_pairs(cells)
    square = eps * eps
    core = core_flags(cells.points, cells.starts, pairs, square, min_samples)
    parents = joined_cells(cells.points, cells.starts, pairs, square, core)
    flatten(parents)
    of_point = np.repeat(parents, np.diff(cells.starts))
    clusters = _numbered(of_point, core, cells.order)
    border_clusters(cells.points, cells.starts, pairs, square, core, clusters)
    labels = np.empty_like(clusters)
    labels[cells.order] = clusters
    return labels


def _numbered(representatives: Indices, core: Flags, order: Indices) -> Labels:
    """Clusters numbered by their first core point; -1 for points that are not core."""
    clusters = np.full(len(core), NOISE, dtype=np.int64)
    _, groups = np.unique(representatives[core], return_inverse=True)
    firsts = np.full(groups.max(initial=-1) + 1, len(core))
    np.minimum.at(firsts, groups, order[core])
    clusters[core] = np.argsort(np.argsort(firsts))[groups]
    return clusters


def _by_tree(points: Points, eps: float, min_samples: int) -> Labels:
    """The same with scikit-learn's k-d tree, queried for limited numbers of neighbours."""
    from sklearn.neighbors import KDTree

    tree = KDTree(points)
    counts = tree.query_radius(points, eps, count_only=True)
    core = counts >= min_samples
    parents = np.arange(len(points))
    for firsts, seconds in _neighbours(tree, points, eps, counts, np.flatnonzero(core)):
        both = core[seconds]
        join_all(parents, firsts[both], seconds[both])
    flatten(parents)
    labels = _numbered(parents, core, np.arange(len(points)))
    best = np.full(len(points), len(points))
    for firsts, seconds in _neighbours(tree, points, eps, counts, np.flatnonzero(~core)):
        adopting = core[seconds]
        np.minimum.at(best, firsts[adopting], labels[seconds[adopting]])
    border = best < len(points)
    labels[border] = best[border]
    return labels


def _neighbours(
    tree: object, points: Points, eps: float, counts: Indices, chosen: Indices
) -> Iterator[tuple[Indices, Indices]]:
    """Pairs (chosen point, neighbour), in chunks of bounded size."""
    chunk_of = np.cumsum(counts[chosen]) // NEIGHBOURS_AT_ONCE
    for chunk in np.split(chosen, np.flatnonzero(np.diff(chunk_of)) + 1):
        if len(chunk):
            found = tree.query_radius(points[chunk], eps)  # type: ignore[attr-defined]
            yield np.repeat(chunk, counts[chunk]), np.concatenate(found).astype(np.int64)
