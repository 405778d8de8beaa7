"""Compact groups of neighbouring points: the leaves of a k-d tree over each cluster."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from qtide.apps.clustering.arrays import Indices, Numbers, Points
from qtide.apps.clustering.compiled import compiled_sums
from qtide.apps.clustering.expansion import Powers, monomials
from qtide.apps.clustering.silhouette import Grouped


class Leaves(NamedTuple):
    """Points of a clustering ordered by cluster and leaf, and what expansions need."""

    coordinates: Numbers  # one row per dimension
    starts: Indices  # of each leaf among the points
    centres: Numbers  # one row per dimension, one column per leaf
    radii: Numbers
    reaches: Numbers  # [leaf, p]: the power mean of degree p+1 of the distances from the centre
    moments: Numbers  # [leaf, k]: the sum of (-offset)^k / k!
    clusters: Indices  # of each cluster among the leaves
    cluster_centres: Numbers
    cluster_radii: Numbers  # root mean square


def leaves(groups: Grouped, most: int, table: Powers) -> Leaves:
    """The grouped points in leaves of at most `most` points, unless those are all equal."""
    points = np.ascontiguousarray(groups.coordinates.T)
    parts: list[Indices] = []
    clusters = [0]
    for start, stop in pairwise(groups.starts):
        parts += _split(points, np.arange(start, stop), most)
        clusters.append(len(parts))
    starts = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    points = points[np.concatenate(parts)]
    centres = _centres(points, starts)
    offsets = points - np.repeat(centres, np.diff(starts), axis=0)
    distances = np.linalg.norm(offsets, axis=1)
    return Leaves(
        np.ascontiguousarray(points.T),
        starts,
        np.ascontiguousarray(centres.T),
        np.maximum.reduceat(distances, starts[:-1]),
        _reaches(distances, starts, len(table.ends)),
        _moments(table, -offsets, starts),
        np.array(clusters),
        groups.centres,
        _spread(groups),
    )


def _split(points: Points, part: Indices, most: int) -> list[Indices]:
    """Halve a part across its widest dimension until it is small enough."""
    if len(part) <= most:
        return [part]
    span = np.ptp(points[part], axis=0)
    axis = int(np.argmax(span))
    if span[axis] == 0.0:
        return [part]
    half = len(part) // 2
    ranked = part[np.argpartition(points[part, axis], half)]
    return _split(points, ranked[:half], most) + _split(points, ranked[half:], most)


def _centres(points: Points, starts: Indices) -> Points:
    """The middle of each leaf's box."""
    low = np.minimum.reduceat(points, starts[:-1], axis=0)
    high = np.maximum.reduceat(points, starts[:-1], axis=0)
    return low + (high - low) / 2


def _reaches(distances: Numbers, starts: Indices, orders: int) -> Numbers:
    """The power means, slightly enlarged to cover rounding; scaled to avoid underflow."""
    largest = np.maximum.reduceat(distances, starts[:-1])
    sizes = np.diff(starts)
    relative = distances / np.repeat(np.where(largest > 0, largest, 1.0), sizes)
    means = [
        np.add.reduceat(relative ** (order + 1), starts[:-1]) / sizes for order in range(orders)
    ]
    roots = [mean ** (1 / (order + 1)) for order, mean in enumerate(means)]
    return np.stack(roots, axis=1) * largest[:, None] * (1 + 1e-9)


@compiled_sums
def _moments(table: Powers, offsets: Points, starts: Indices) -> Numbers:
    """The sums of offset^k / k! over the points of each leaf."""
    terms = table.orders.size
    values = np.empty(terms)
    sums = np.zeros((starts.size - 1, terms))
    for leaf in range(starts.size - 1):
        for point in range(starts[leaf], starts[leaf + 1]):
            monomials(table, terms, offsets[point], values)
            for place in range(terms):
                sums[leaf, place] += values[place]
    return sums


def _spread(groups: Grouped) -> Numbers:
    """The root mean square distance of each cluster's points from its centroid."""
    sizes = np.diff(groups.starts)
    centres = np.repeat(groups.centres, sizes, axis=1)
    squares = ((groups.coordinates - centres) ** 2).sum(axis=0)
    means: Numbers = np.add.reduceat(squares, groups.starts[:-1]) / sizes
    return np.sqrt(means)
