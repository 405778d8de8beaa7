"""DBSCAN with scikit-learn's semantics and labels, in memory linear in the number of points.

Neighbours are at most eps apart, and a point counts itself. Clusters are numbered by their first
core point, a border point joins the lowest-numbered cluster within eps, and noise is -1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from qtide.apps.clustering.arrays import Flags, Indices, Labels, Numbers, Points
from qtide.apps.compiled import compiled

MOST_GRID_DIMENSIONS = 3
NOISE = -1


def dbscan(points: Points, eps: float, min_samples: int) -> Labels:
    """Return the cluster of every point, -1 for noise."""
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
    """Number clusters by their first core point; -1 for points that are not core."""
    clusters = np.full(len(core), NOISE, dtype=np.int64)
    _, groups = np.unique(representatives[core], return_inverse=True)
    firsts = np.full(groups.max(initial=-1) + 1, len(core))
    np.minimum.at(firsts, groups, order[core])
    clusters[core] = np.argsort(np.argsort(firsts))[groups]
    return clusters


def _by_tree(points: Points, eps: float, min_samples: int) -> Labels:
    """Cluster with scikit-learn's k-d tree, queried in chunks to bound memory."""
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


NEIGHBOURS_AT_ONCE = 2_000_000  # 16 MB of indices


def _neighbours(
    tree: object, points: Points, eps: float, counts: Indices, chosen: Indices
) -> Iterator[tuple[Indices, Indices]]:
    """Yield pairs (chosen point, neighbour) in chunks of bounded size."""
    chunk_of = np.cumsum(counts[chosen]) // NEIGHBOURS_AT_ONCE
    for chunk in np.split(chosen, np.flatnonzero(np.diff(chunk_of)) + 1):
        if len(chunk):
            found = tree.query_radius(points[chunk], eps)  # type: ignore[attr-defined]
            yield np.repeat(chunk, counts[chunk]), np.concatenate(found).astype(np.int64)


MOST_CELLS_A_SIDE = 2**20  # keeps cell keys within 63 bits and index rounding below 1e-9
SHRINK = 1 - 1e-8  # keeps rounding from putting points more than eps apart into one cell
REACH = 2  # cells within eps: sqrt(d) rounded up; 2 in one dimension too, because of SHRINK


@dataclass(frozen=True, slots=True)
class Grid:
    """Points ordered by cell; non-empty cells in ascending order of their keys."""

    points: Points
    order: Indices
    starts: Indices
    keys: Indices
    strides: Indices

    @property
    def cells(self) -> int:
        """Number of non-empty cells."""
        return len(self.keys)


def grid(points: Points, eps: float) -> Grid | None:
    """Sort the points into cells of side eps/sqrt(d); None if the data is too wide for the keys."""
    low = points.min(axis=0)
    side = eps / np.sqrt(points.shape[1]) * SHRINK
    with np.errstate(over="ignore"):
        spans = (points.max(axis=0) - low) / side
    if not (spans < MOST_CELLS_A_SIDE).all():
        return None
    cells = ((points - low) / side).astype(np.int64)
    # REACH empty cells pad each line, so that a step over an edge never reaches a filled cell.
    sides = cells.max(axis=0) + 1 + REACH
    strides = np.concatenate((np.cumprod(sides[::-1])[-2::-1], [1]))
    keys = cells @ strides
    order = np.argsort(keys, kind="stable")
    filled, firsts = np.unique(keys[order], return_index=True)
    return Grid(points[order], order, np.append(firsts, len(points)), filled, strides)


def neighbour_pairs(cells: Grid) -> Indices:
    """Return all pairs (smaller, larger) of non-empty cells within reach, closest first."""
    dimensions = len(cells.strides)
    steps = np.array(list(product(range(-REACH, REACH + 1), repeat=dimensions)))
    forward = steps[len(steps) // 2 + 1 :]
    forward = forward[np.argsort((forward**2).sum(axis=1), kind="stable")]
    pairs = [_pairs_of_step(cells.keys, step) for step in forward @ cells.strides]
    return np.concatenate(pairs, axis=0)


def _pairs_of_step(keys: Indices, step: int) -> Indices:
    """Pairs of cells whose keys differ by `step`."""
    found = np.searchsorted(keys, keys + step)
    found[found == len(keys)] = 0
    near = np.flatnonzero(keys[found] == keys + step)
    return np.stack((near, found[near]), axis=1)


@compiled
def core_flags(points: Points, starts: Indices, pairs: Indices, square: float, least: int) -> Flags:
    """Flag the points that have at least `least` points, including themselves, within eps."""
    counts = np.empty(points.shape[0], dtype=np.int64)
    for cell in range(starts.size - 1):
        counts[starts[cell] : starts[cell + 1]] = starts[cell + 1] - starts[cell]
    for pair in range(pairs.shape[0]):
        first, second = pairs[pair, 0], pairs[pair, 1]
        _count_between(points, starts, first, second, square, least, counts)
        _count_between(points, starts, second, first, square, least, counts)
    return counts >= least


@compiled
def _count_between(
    points: Points,
    starts: Indices,
    here: int,
    there: int,
    square: float,
    least: int,
    counts: Indices,
) -> None:
    """Count neighbours in another cell for one cell's points that are not yet known as core."""
    if starts[here + 1] - starts[here] >= least:
        return
    for point in range(starts[here], starts[here + 1]):
        for other in range(starts[there], starts[there + 1]):
            if counts[point] >= least:
                break
            counts[point] += within(points, point, other, square)


@compiled
def joined_cells(
    points: Points, starts: Indices, pairs: Indices, square: float, core: Flags
) -> Indices:
    """For each cell, the representative of the cluster that its core points belong to."""
    parents = np.arange(starts.size - 1)
    boxes = _core_boxes(points, starts, core)
    for pair in range(pairs.shape[0]):
        first, second = pairs[pair, 0], pairs[pair, 1]
        if root(parents, first) != root(parents, second) and _touch(
            points, starts, first, second, square, core, boxes
        ):
            join(parents, first, second)
    return parents


@compiled
def _core_boxes(points: Points, starts: Indices, core: Flags) -> Numbers:
    """The lowest and highest coordinates of each cell's core points."""
    boxes = np.empty((starts.size - 1, 2, points.shape[1]))
    boxes[:, 0] = np.inf
    boxes[:, 1] = -np.inf
    for cell in range(starts.size - 1):
        for point in range(starts[cell], starts[cell + 1]):
            if core[point]:
                for dimension in range(points.shape[1]):
                    value = points[point, dimension]
                    boxes[cell, 0, dimension] = min(boxes[cell, 0, dimension], value)
                    boxes[cell, 1, dimension] = max(boxes[cell, 1, dimension], value)
    return boxes


@compiled
def _touch(
    points: Points,
    starts: Indices,
    first: int,
    second: int,
    square: float,
    core: Flags,
    boxes: Numbers,
) -> bool:
    """Whether two cells have core points within eps of each other."""
    for point in range(starts[first], starts[first + 1]):
        if core[point] and _box_gap(points[point], boxes[second]) <= square:
            for other in range(starts[second], starts[second + 1]):
                if core[other] and within(points, point, other, square):
                    return True
    return False


@compiled
def _box_gap(point: Numbers, box: Numbers) -> float:
    """Squared distance from a point to a box; infinite for a box without points."""
    total = 0.0
    for dimension in range(point.size):
        gap = max(box[0, dimension] - point[dimension], point[dimension] - box[1, dimension], 0.0)
        total += gap * gap
    return total


@compiled
def border_clusters(
    points: Points,
    starts: Indices,
    pairs: Indices,
    square: float,
    core: Flags,
    clusters: Indices,
) -> None:
    """Give each non-core point the lowest cluster among the core points within eps, if any.

    `clusters` holds -1 for every non-core point and is updated in place.
    """
    best = np.full(core.size, core.size)
    for cell in range(starts.size - 1):
        _adopt(points, starts, cell, cell, square, core, clusters, best)
    for pair in range(pairs.shape[0]):
        first, second = pairs[pair, 0], pairs[pair, 1]
        _adopt(points, starts, first, second, square, core, clusters, best)
        _adopt(points, starts, second, first, square, core, clusters, best)
    for point in range(core.size):
        if not core[point] and best[point] < core.size:
            clusters[point] = best[point]


@compiled
def _adopt(
    points: Points,
    starts: Indices,
    here: int,
    there: int,
    square: float,
    core: Flags,
    clusters: Indices,
    best: Indices,
) -> None:
    """Record the lowest cluster in cell `there` within eps of each non-core point of `here`."""
    for point in range(starts[here], starts[here + 1]):
        if core[point]:
            continue
        for other in range(starts[there], starts[there + 1]):
            closer = core[other] and clusters[other] < best[point]
            if closer and within(points, point, other, square):
                best[point] = clusters[other]


@compiled
def within(points: Points, first: int, second: int, square: float) -> bool:
    """Whether two points are at most sqrt(square) apart."""
    total = 0.0
    for dimension in range(points.shape[1]):
        total += (points[first, dimension] - points[second, dimension]) ** 2
    return total <= square


@compiled
def root(parents: Indices, item: int) -> int:
    """Return the representative of the item's set; halve the path to it."""
    while parents[item] != item:
        parents[item] = parents[parents[item]]
        item = parents[item]
    return item


@compiled
def join(parents: Indices, first: int, second: int) -> None:
    """Merge two sets; keep the smaller representative, so that order does not matter."""
    first = root(parents, first)
    second = root(parents, second)
    if first < second:
        parents[second] = first
    else:
        parents[first] = second


@compiled
def join_all(parents: Indices, firsts: Indices, seconds: Indices) -> None:
    """Merge the sets of firsts[i] and seconds[i] for every i."""
    for edge in range(firsts.size):
        join(parents, firsts[edge], seconds[edge])


@compiled
def flatten(parents: Indices) -> None:
    """Link every item directly to its representative."""
    for item in range(parents.size):
        parents[item] = root(parents, item)
