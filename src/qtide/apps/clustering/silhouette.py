"""The exact silhouette in any dimension: linear memory, divisible among tasks, merged exactly.

Conventions: a point alone in its cluster scores 0, as in scikit-learn; fewer than two clusters
score -1; DBSCAN's noise is a cluster like any other.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from qtide.apps.clustering.arrays import (
    Indices,
    Labels,
    Numbers,
    Points,
    centroids,
    compacted,
)
from qtide.apps.clustering.compiled import compiled_sums
from qtide.apps.clustering.parts import equal_parts

ONE_CLUSTER_SCORE = -1.0
CHUNK = 512  # squared distances kept at once: they stay in the first-level cache


@dataclass(frozen=True, slots=True)
class Grouped:
    """Points ordered by cluster, one row per dimension, so that sums run over contiguous memory."""

    coordinates: Numbers
    starts: Indices
    centres: Numbers
    order: Indices

    @property
    def clusters(self) -> int:
        """How many clusters there are."""
        return len(self.starts) - 1


def grouped(points: Points, labels: Labels) -> Grouped:
    """The points in the order in which their silhouette is computed."""
    compact, clusters = compacted(labels)
    order = np.argsort(compact, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(compact, minlength=clusters))))
    # summed about the mean, centroids stay precise when the data lies far from the origin
    middle = points.mean(axis=0)
    centres = centroids(points - middle, compact, clusters) + middle
    return Grouped(_rows(points[order]), starts, _rows(centres), order)


def _rows(points: Points) -> Numbers:
    """The transposed points; a single dimension gets a second row of zeros."""
    rows = np.zeros((max(2, points.shape[1]), len(points)))
    rows[: points.shape[1]] = points.T
    return rows


def silhouette_part(points: Points, labels: Labels, start: int, stop: int) -> Numbers:
    """The silhouettes of the points [start, stop) within the whole clustering."""
    return _part(grouped(points, labels), start, stop)


def silhouette(points: Points, labels: Labels, *, threads: int = 1) -> float:
    """The mean silhouette over all points."""
    return float(silhouette_samples(points, labels, threads=threads).mean())


def silhouette_samples(points: Points, labels: Labels, *, threads: int = 1) -> Numbers:
    """The silhouette of every point."""
    groups = grouped(points, labels)
    if threads == 1:
        return _part(groups, 0, len(points))
    ranges = equal_parts(len(points), threads)
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(lambda part: _part(groups, *part), ranges)))


def _part(groups: Grouped, start: int, stop: int) -> Numbers:
    scores = np.full(stop - start, ONE_CLUSTER_SCORE)
    if groups.clusters > 1:
        places = np.argsort(groups.order)[start:stop]
        _score(groups.coordinates, groups.starts, groups.centres, places, scores)
    return scores


@compiled_sums
def _score(
    coordinates: Numbers, starts: Indices, centres: Numbers, places: Indices, scores: Numbers
) -> None:
    """Score the points at the given positions of the grouped order."""
    buffer = np.empty(CHUNK)
    apart = np.empty(centres.shape[1])
    for number in range(places.size):
        place = places[number]
        own = np.searchsorted(starts, place, side="right") - 1
        size = starts[own + 1] - starts[own]
        if size == 1:
            scores[number] = 0.0
            continue
        _centre_distances(coordinates, centres, place, apart)
        inner = distance_sum(coordinates, starts[own], starts[own + 1], place, buffer) / (size - 1)
        outer = _nearest_mean(coordinates, starts, own, place, apart, buffer)
        largest = max(inner, outer)
        scores[number] = (outer - inner) / largest if largest > 0.0 else 0.0


@compiled_sums
def _nearest_mean(
    coordinates: Numbers, starts: Indices, own: int, place: int, apart: Numbers, buffer: Numbers
) -> float:
    """The least mean distance to another cluster.

    The mean distance to a cluster is at least the distance to its centroid (the norm is convex),
    so a cluster whose centroid is farther than the least mean so far need not be summed.
    """
    apart[own] = np.inf
    cluster = int(np.argmin(apart))
    least = np.inf
    while apart[cluster] < least:
        first, last = starts[cluster], starts[cluster + 1]
        mean = distance_sum(coordinates, first, last, place, buffer) / (last - first)
        least = min(least, mean)
        apart[cluster] = np.inf
        cluster = int(np.argmin(apart))
    return least


@compiled_sums
def _centre_distances(coordinates: Numbers, centres: Numbers, place: int, apart: Numbers) -> None:
    """Write how far every centroid lies from one point."""
    for cluster in range(apart.size):
        square = 0.0
        for dimension in range(coordinates.shape[0]):
            square += (coordinates[dimension, place] - centres[dimension, cluster]) ** 2
        apart[cluster] = math.sqrt(square)


@compiled_sums
def distance_sum(coordinates: Numbers, first: int, last: int, place: int, buffer: Numbers) -> float:
    """The sum of distances from one point to the points [first, last)."""
    dimensions = coordinates.shape[0]
    total = 0.0
    for start in range(first, last, CHUNK):
        count = min(CHUNK, last - start)
        _squares(coordinates, start, count, place, buffer)
        value = coordinates[dimensions - 1, place]
        row = coordinates[dimensions - 1, start : start + count]
        for item in range(count):
            total += math.sqrt(buffer[item] + (value - row[item]) ** 2)
    return total


@compiled_sums
def _squares(coordinates: Numbers, start: int, count: int, place: int, buffer: Numbers) -> None:
    """Write the squared distances in all dimensions but the last."""
    value = coordinates[0, place]
    row = coordinates[0, start : start + count]
    for item in range(count):
        buffer[item] = (value - row[item]) ** 2
    for dimension in range(1, coordinates.shape[0] - 1):
        value = coordinates[dimension, place]
        row = coordinates[dimension, start : start + count]
        for item in range(count):
            buffer[item] += (value - row[item]) ** 2
