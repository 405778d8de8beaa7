"""The silhouette with a certified error bound, for points in one to three dimensions.

Sums of distances from a leaf's points to far sources are expanded about the leaf's centre, and
sums over near sources are exact. Each point's score becomes an interval that contains the true
score; the bound is half the mean width of these intervals. It includes rounding under the usual
model: IEEE doubles rounded to nearest, and squares of differences that neither overflow nor
underflow. The error of a sum of n terms is then less than n rounding units of the sum of their
absolute values.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from qtide.apps.clustering.arrays import Indices, Labels, Numbers, Points
from qtide.apps.clustering.expansion import (
    LANES,
    NO_ORDER,
    Powers,
    contract,
    derivatives,
    monomials,
    order_for,
    powers,
    remainder,
)
from qtide.apps.clustering.silhouette import (
    CHUNK,
    Grouped,
    distance_sum,
    equal_parts,
    grouped,
    silhouette,
)
from qtide.apps.compiled import compiled_inner, compiled_sums

TOLERANCE = 1e-6
MOST_DIMENSIONS = 3
FIRST_ALLOWED = 6  # times the tolerance: most sources err far less than their leaf's worst case
ATTEMPTS = 4
UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class Certified:
    """A score and a bound on its error."""

    score: float
    bound: float

    def decides(self, threshold: float) -> bool:
        """Whether the bound settles on which side of the threshold the true score is."""
        return abs(self.score - threshold) > self.bound


def reaches(points: Points, labels: Labels, threshold: float) -> tuple[bool, Certified]:
    """Whether the score reaches the threshold; sums exactly if the bound cannot decide."""
    found = certified_silhouette(points, labels)
    if not found.decides(threshold):
        found = _exact(points, labels, threads=1)
    return found.score >= threshold, found


def certified_silhouette(
    points: Points, labels: Labels, *, tolerance: float = TOLERANCE, threads: int = 1
) -> Certified:
    """Compute the mean silhouette with a bound of at most the tolerance (rounding permitting)."""
    groups = grouped(points, labels)
    if points.shape[1] > MOST_DIMENSIONS or groups.clusters < 2:
        return _exact(points, labels, threads)
    table = powers(groups.coordinates.shape[0])
    tree = leaves(groups, _leaf_size(len(points)), table)
    allowed = FIRST_ALLOWED * tolerance
    for _ in range(ATTEMPTS):
        found = _certified(tree, table, allowed, threads)
        if found.bound <= tolerance:
            return found
        allowed *= min(0.5, tolerance / found.bound / 2)
    return _exact(points, labels, threads)


def _exact(points: Points, labels: Labels, threads: int) -> Certified:
    rounding = 8 * UNIT * (len(points) + points.shape[1])
    return Certified(silhouette(points, labels, threads=threads), rounding)


def _leaf_size(points: int) -> int:
    """Leaf size that balances near sums, which grow with it, and far sums, which shrink."""
    return max(32, int(0.4 * math.sqrt(points)))


def _certified(tree: Leaves, table: Powers, allowed: float, threads: int) -> Certified:
    """Compute score and bound with an error per source of `allowed` of its cluster's distance."""
    count = tree.coordinates.shape[1]
    low, high = np.zeros(count), np.zeros(count)
    # Rounding error of a centroid; it only affects which clusters can be skipped.
    slack = 4 * UNIT * (count + 8) * float(np.abs(tree.coordinates).max())

    def score(part: tuple[int, int]) -> None:
        _score_leaves(
            tree, part[0], part[1], table, allowed, slack, _scratch(tree, table), low, high
        )

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score, equal_parts(tree.radii.size, threads)))
    width = float((high - low).mean())
    rounding = 4 * UNIT * math.log2(count + 2)  # error of the means, which numpy sums pairwise
    return Certified(float((high + low).mean()) / 2, width / 2 + rounding)


class Leaves(NamedTuple):
    """Points of a clustering ordered by cluster and leaf, and the data for expansions."""

    coordinates: Numbers  # one row per dimension
    starts: Indices  # index of each leaf's first point
    centres: Numbers  # one row per dimension, one column per leaf
    radii: Numbers
    reaches: Numbers  # [leaf, p]: the power mean of degree p+1 of the distances from the centre
    moments: Numbers  # [leaf, k]: the sum of (-offset)^k / k!
    clusters: Indices  # index of each cluster's first leaf
    cluster_centres: Numbers
    cluster_radii: Numbers  # root mean square distances from the centroids


def leaves(groups: Grouped, most: int, table: Powers) -> Leaves:
    """Split the grouped points into leaves of at most `most` points; equal points stay together."""
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
    """Power means, slightly enlarged to cover rounding; distances are scaled against underflow."""
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
    """Sum offset^k / k! over the points of each leaf."""
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


KNOTS = 4


class Scratch(NamedTuple):
    """Working memory of the kernels, one set per thread."""

    lanes: Numbers  # derivatives, one column per source leaf
    moments: Numbers  # of the same source leaves
    across: Numbers  # vectors from their centres to the target leaf's
    local: Numbers  # the expansion about the target leaf's centre
    values: Numbers
    remainders: Numbers  # error of the expansion at KNOTS + 1 distances from the centre
    orders: Indices  # expansion orders of the source leaves of one cluster
    buffer: Numbers
    sums: Numbers  # of distances to one cluster, one per point of the target leaf
    errors: Numbers
    means: Numbers  # least and greatest inner mean, least and greatest outer mean
    apart: Numbers  # distances from the target leaf to the clusters not yet examined


def _scratch(tree: Leaves, table: Powers) -> Scratch:
    largest = int(np.diff(tree.starts).max())
    terms = table.orders.size
    return Scratch(
        np.empty((terms, LANES)),
        np.empty((terms, LANES)),
        np.empty((tree.centres.shape[0] + 1, LANES)),
        np.empty(terms),
        np.empty(terms),
        np.empty(KNOTS + 1),
        np.empty(int(np.diff(tree.clusters).max()), dtype=np.int64),
        np.empty(CHUNK),
        np.empty(largest),
        np.empty(largest),
        np.empty((4, largest)),
        np.empty(tree.clusters.size - 1),
    )


NO_CLUSTER = -1
FAR_COST = 3  # measured: a term of an expansion takes as long as this many distances
EXPANSION_STEPS = 256  # generous bound on the number of roundings of a term of an expansion


@compiled_sums
def _score_leaves(
    tree: Leaves,
    first: int,
    last: int,
    table: Powers,
    allowed: float,
    slack: float,
    scratch: Scratch,
    low: Numbers,
    high: Numbers,
) -> None:
    """Write the least and greatest possible silhouettes of the points in the given leaves.

    A point's own cluster is examined first, then the others that may be nearest to it.
    """
    for leaf in range(first, last):
        own = int(np.searchsorted(tree.clusters, leaf, side="right")) - 1
        if _cluster_size(tree, own) == 1:
            continue
        scratch.means[:] = np.inf
        for cluster in range(scratch.apart.size):
            scratch.apart[cluster] = _apart(tree.centres, leaf, tree.cluster_centres, cluster)
        cluster = own
        while cluster != NO_CLUSTER:
            _field(tree, leaf, cluster, table, allowed, scratch)
            _note_means(tree, leaf, cluster, own, scratch)
            cluster = _next_cluster(tree, leaf, cluster, slack, scratch)
        for point in range(tree.starts[leaf], tree.starts[leaf + 1]):
            least, most, outer_least, outer_most = scratch.means[:, point - tree.starts[leaf]]
            low[point] = _ratio(most, outer_least)
            high[point] = _ratio(least, outer_most)


@compiled_inner
def _ratio(inner: float, outer: float) -> float:
    """Silhouette of a point; it falls with the inner mean and rises with the outer mean."""
    largest = max(inner, outer)
    return (outer - inner) / largest if largest > 0.0 else 0.0


@compiled_inner
def _cluster_size(tree: Leaves, cluster: int) -> int:
    """Number of points in the cluster."""
    return int(tree.starts[tree.clusters[cluster + 1]] - tree.starts[tree.clusters[cluster]])


@compiled_inner
def _note_means(tree: Leaves, leaf: int, cluster: int, own: int, scratch: Scratch) -> None:
    """Turn the sums into intervals of mean distances; keep the least outer mean."""
    size = _cluster_size(tree, cluster)
    row = 0 if cluster == own else 2
    others = size - 1 if cluster == own else size
    for item in range(tree.starts[leaf + 1] - tree.starts[leaf]):
        low = max(scratch.sums[item] - scratch.errors[item], 0.0) / others
        high = (scratch.sums[item] + scratch.errors[item]) / others
        scratch.means[row, item] = min(scratch.means[row, item], low)
        scratch.means[row + 1, item] = min(scratch.means[row + 1, item], high)


@compiled_inner
def _next_cluster(tree: Leaves, leaf: int, cluster: int, slack: float, scratch: Scratch) -> int:
    """Return the closest unexamined cluster that may be nearest to a point of the leaf."""
    scratch.apart[cluster] = np.inf
    while True:
        cluster = int(np.argmin(scratch.apart))
        if scratch.apart[cluster] == np.inf:
            return NO_CLUSTER
        if _may_be_nearest(tree, leaf, cluster, slack, scratch.means[3]):
            return cluster
        scratch.apart[cluster] = np.inf


@compiled_inner
def _may_be_nearest(tree: Leaves, leaf: int, cluster: int, slack: float, high: Numbers) -> bool:
    """Whether the cluster may be nearest to a point of the leaf.

    The mean distance to a cluster is at least the distance to its centroid.
    """
    start = tree.starts[leaf]
    for point in range(start, tree.starts[leaf + 1]):
        apart = _apart(tree.coordinates, point, tree.cluster_centres, cluster)
        if apart * (1.0 - 1e-12) - slack < high[point - start]:
            return True
    return False


@compiled_inner
def _apart(firsts: Numbers, first: int, seconds: Numbers, second: int) -> float:
    """Distance between two columns."""
    square = 0.0
    for axis in range(firsts.shape[0]):
        square += (firsts[axis, first] - seconds[axis, second]) ** 2
    return math.sqrt(square)


@compiled_inner
def _field(
    tree: Leaves, leaf: int, cluster: int, table: Powers, allowed: float, scratch: Scratch
) -> None:
    """Write the sums of distances from the leaf's points to a cluster, and their errors."""
    scratch.local[:] = 0.0
    scratch.remainders[:] = 0.0
    scratch.sums[:] = 0.0
    scale = max(
        tree.cluster_radii[cluster], _apart(tree.centres, leaf, tree.cluster_centres, cluster)
    )
    most = _choose_orders(tree, leaf, cluster, table, allowed * scale, scratch)
    for order in range(2, most + 1, 2):
        _add_far(tree, leaf, cluster, order, table, scratch)
    _add_near(tree, leaf, cluster, scratch)
    _add_expansion(tree, leaf, table.ends[most], table, scratch)
    rounding = 4.0 * UNIT * (_cluster_size(tree, cluster) + EXPANSION_STEPS)
    for item in range(tree.starts[leaf + 1] - tree.starts[leaf]):
        scratch.errors[item] += rounding * scratch.sums[item]


@compiled_inner
def _choose_orders(
    tree: Leaves, leaf: int, cluster: int, table: Powers, allowed: float, scratch: Scratch
) -> int:
    """Write each source leaf's expansion order, NO_ORDER to sum it; return the highest order."""
    first = tree.clusters[cluster]
    count = tree.starts[leaf + 1] - tree.starts[leaf]
    most = 0
    for source in range(first, tree.clusters[cluster + 1]):
        distance = _apart(tree.centres, leaf, tree.centres, source)
        size = tree.radii[leaf] + tree.radii[source]
        ratio = size / distance * (1.0 + 1e-12) if distance > 0.0 else np.inf
        order = order_for(tree.reaches[source], 0.75 * tree.radii[leaf], ratio, distance, allowed)
        pairs = count * (tree.starts[source + 1] - tree.starts[source])
        if order != NO_ORDER and table.ends[order] * FAR_COST > pairs:
            order = NO_ORDER
        scratch.orders[source - first] = order
        most = max(most, order)
        if order != NO_ORDER:
            _add_remainder(tree, leaf, source, order, ratio, distance, scratch)
    return most


@compiled_inner
def _add_remainder(
    tree: Leaves,
    leaf: int,
    source: int,
    order: int,
    ratio: float,
    distance: float,
    scratch: Scratch,
) -> None:
    """Add a source leaf's greatest error for targets at each knot's distance from the centre.

    By Minkowski's inequality, for one target the mean of (|x| + |y|)^(p+1) over the sources is at
    most (|x| + reach)^(p+1).
    """
    number = tree.starts[source + 1] - tree.starts[source]
    knots = scratch.remainders.size - 1
    for knot in range(knots + 1):
        size = tree.radii[leaf] * knot / knots + tree.reaches[source, order]
        scratch.remainders[knot] += number * remainder(size, ratio, distance, order)


@compiled_inner
def _add_near(tree: Leaves, leaf: int, cluster: int, scratch: Scratch) -> None:
    """Add the distances to leaves that are not expanded; sum adjacent leaves in one sweep."""
    base = tree.clusters[cluster]
    number = tree.clusters[cluster + 1] - base
    first = 0
    while first < number:
        last = first
        while last < number and scratch.orders[last] == NO_ORDER:
            last += 1
        if last > first:
            _add_sources(tree, leaf, tree.starts[base + first], tree.starts[base + last], scratch)
        first = last + 1


@compiled_inner
def _add_sources(tree: Leaves, leaf: int, first: int, last: int, scratch: Scratch) -> None:
    """Add the distances from the leaf's points to the points [first, last)."""
    start = tree.starts[leaf]
    for point in range(start, tree.starts[leaf + 1]):
        scratch.sums[point - start] += distance_sum(
            tree.coordinates, first, last, point, scratch.buffer
        )


@compiled_inner
def _add_far(
    tree: Leaves, leaf: int, cluster: int, order: int, table: Powers, scratch: Scratch
) -> None:
    """Add the source leaves of one order to the expansion about this leaf's centre."""
    base = tree.clusters[cluster]
    last = tree.clusters[cluster + 1] - 1
    lane = 0
    for source in range(base, last + 1):
        if scratch.orders[source - base] == order:
            for axis in range(tree.centres.shape[0]):
                scratch.across[axis, lane] = tree.centres[axis, leaf] - tree.centres[axis, source]
            for place in range(table.ends[order]):
                scratch.moments[place, lane] = tree.moments[source, place]
            lane += 1
        if lane == LANES or (source == last and lane > 0):
            derivatives(table, order, lane, scratch.across, scratch.lanes)
            contract(table, order, lane, scratch.lanes, scratch.moments, scratch.local)
            lane = 0


@compiled_inner
def _add_expansion(tree: Leaves, leaf: int, terms: int, table: Powers, scratch: Scratch) -> None:
    """Evaluate the expansion at the leaf's points and record its remainder."""
    start = tree.starts[leaf]
    offset = np.empty(tree.centres.shape[0])
    for point in range(start, tree.starts[leaf + 1]):
        for axis in range(offset.size):
            offset[axis] = tree.coordinates[axis, point] - tree.centres[axis, leaf]
        monomials(table, terms, offset, scratch.values)
        total = 0.0
        for place in range(terms):
            total += scratch.local[place] * scratch.values[place]
        scratch.sums[point - start] += total
        distance = _apart(tree.coordinates, point, tree.centres, leaf)
        scratch.errors[point - start] = _remainder_at(tree.radii[leaf], distance, scratch)


@compiled_inner
def _remainder_at(radius: float, distance: float, scratch: Scratch) -> float:
    """Bound the error between two knots; it is convex in the distance, so the chord is above."""
    knots = scratch.remainders.size - 1
    place = min(distance / radius, 1.0) * knots if radius > 0.0 else 0.0
    knot = min(int(place), knots - 1)
    share = place - knot
    below, above = scratch.remainders[knot], scratch.remainders[knot + 1]
    return float((1.0 - share) * below + share * above)
