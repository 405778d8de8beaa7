"""The exact silhouette in any dimension, in linear memory; tasks can compute parts to be merged.

Conventions: a point alone in its cluster scores 0, as in scikit-learn; fewer than two clusters
score -1; DBSCAN's noise is a cluster like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from qtide.apps.clustering.arrays import (
    Indices,
    Labels,
    Numbers,
    Points,
    centroids,
    compacted,
)
from qtide.apps.compiled import compiled_sums

ONE_CLUSTER_SCORE = -1.0
CHUNK = 512  # squared distances held at once, so that they stay in the first-level cache


@dataclass(frozen=True, slots=True)
class Grouped:
    """Points ordered by cluster, one row per dimension, so that sums read contiguous memory."""

    coordinates: Numbers
    starts: Indices
    centres: Numbers
    order: Indices

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return len(self.starts) - 1


def grouped(points: Points, labels: Labels) -> Grouped:
    """Order the points for the computation of their silhouette."""
    compact, clusters = compacted(labels)
    order = np.argsort(compact, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(compact, minlength=clusters))))
    # Summing about the mean keeps centroids precise when the data lies far from the origin.
    middle = points.mean(axis=0)
    centres = centroids(points - middle, compact, clusters) + middle
    return Grouped(_rows(points[order]), starts, _rows(centres), order)


def _rows(points: Points) -> Numbers:
    """Transpose the points; a single dimension gets a second row of zeros."""
    rows = np.zeros((max(2, points.shape[1]), len(points)))
    rows[: points.shape[1]] = points.T
    return rows


def silhouette_part(points: Points, labels: Labels, start: int, stop: int) -> Numbers:
    """Silhouettes of the points [start, stop) within the whole clustering."""
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
    """Return the least mean distance to another cluster.

    The mean distance to a cluster is at least the distance to its centroid (the norm is convex),
    so a cluster whose centroid is farther than the least mean so far can be skipped.
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
    """Write the distance of every centroid from one point."""
    for cluster in range(apart.size):
        square = 0.0
        for dimension in range(coordinates.shape[0]):
            square += (coordinates[dimension, place] - centres[dimension, cluster]) ** 2
        apart[cluster] = math.sqrt(square)


@compiled_sums
def distance_sum(coordinates: Numbers, first: int, last: int, place: int, buffer: Numbers) -> float:
    """Sum the distances from one point to the points [first, last)."""
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


def equal_parts(points: int, count: int) -> list[tuple[int, int]]:
    """Split all points into at most `count` ranges [start, stop) of nearly equal length."""
    edges = np.unique(np.linspace(0, points, min(count, points) + 1).astype(int))
    return [(int(start), int(stop)) for start, stop in pairwise(edges)]


def merged_silhouette(parts: Iterable[Numbers]) -> float:
    """Compute the overall score from the parts, which cover all points in order."""
    return float(np.concatenate(list(parts)).mean())


SAMPLE = 10_000  # points used to estimate qualities: takes 0.1 s, errors below 0.005
LEAST_OF_A_CLUSTER = 64  # fewest of them per cluster, so that small clusters are estimated too


def qualities(
    points: Points, clusterings: Mapping[str, Labels], *, seed: int = 0
) -> dict[str, Numbers]:
    """Estimate the qualities of the clusters of each method."""
    return {
        method: cluster_qualities(points, compacted(labels)[0], seed=seed)
        for method, labels in clusterings.items()
    }


def cluster_qualities(points: Points, labels: Labels, *, seed: int = 0) -> Numbers:
    """Estimate each cluster's mean silhouette within the partition, for labels 0…k-1."""
    sample = _sample(labels, seed)
    chosen = labels[sample]
    scores = silhouette_samples(points[sample], chosen)
    return np.bincount(chosen, weights=scores) / np.bincount(chosen)


def _sample(labels: Labels, seed: int) -> Indices:
    """Draw seeded points, the same for all methods, plus more from clusters with too few."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_cluster = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    firsts = by_cluster[rank < LEAST_OF_A_CLUSTER]
    return np.union1d(shuffled[:SAMPLE], firsts)
