"""The overlap graph and its QUBO: nodes are the clusters of all methods, edges join overlaps.

Every method covers every point, so by size alone all whole partitions tie. The `quality` weights
break these ties: a cluster's weight is its size times the square root of its silhouette within its
own method's partition. The root is concave, so one even cluster beats a good and a bad piece of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import dimod
import numpy as np

from qtide.apps.clustering.arrays import Flags, Indices, Labels, Numbers, compacted

LEAST_QUALITY = 0.0025  # a bad cluster still beats leaving its points uncovered


@dataclass(frozen=True, slots=True)
class OverlapNode:
    """One cluster, found by one or more methods."""

    methods: tuple[str, ...]
    clustering: int
    cluster: int
    size: int
    weight: float


@dataclass(frozen=True, slots=True)
class OverlapGraph:
    """The nodes, their overlaps (bit j of overlaps[i]), and the clusterings themselves."""

    nodes: tuple[OverlapNode, ...]
    overlaps: tuple[int, ...]
    penalty: float
    clusterings: tuple[Labels, ...]

    @property
    def weights(self) -> list[float]:
        """The weight of each node."""
        return [node.weight for node in self.nodes]

    def members(self, node: int) -> Flags:
        """Flags of the points that belong to a node."""
        found = self.nodes[node]
        mask: Flags = self.clusterings[found.clustering] == found.cluster
        return mask

    def weight(self, chosen: tuple[int, ...]) -> float:
        """Total weight of the chosen nodes."""
        return sum(self.nodes[node].weight for node in chosen)


def overlap_graph(
    clusterings: Mapping[str, Labels], qualities: Mapping[str, Numbers] | None = None
) -> OverlapGraph:
    """Build the graph of all clusters, weighted by the given qualities, or as published if None.

    With qualities, equal clusters found by several methods are merged into one node.
    """
    compact = [compacted(labels) for labels in clusterings.values()]
    labels = tuple(found for found, _ in compact)
    offsets = np.concatenate(([0], np.cumsum([clusters for _, clusters in compact])))
    sizes = np.concatenate([np.bincount(found, minlength=k) for found, k in compact])
    shared = _shared_points(labels, offsets)
    if qualities is None:
        firsts, weights, penalty = np.arange(len(sizes)), sizes / sizes.max(), float(len(sizes))
    else:
        firsts = _firsts(shared, sizes)
        judged = np.concatenate([qualities[method] for method in clusterings])
        weights = _quality_weights(judged, sizes, firsts)
        penalty = 2.0  # twice the greatest weight: overlaps never pay, and energies stay comparable
    nodes = _nodes(tuple(clusterings), offsets, sizes, weights, firsts)
    return OverlapGraph(nodes, _neighbours(shared, firsts), penalty, labels)


def qubo(graph: OverlapGraph) -> dimod.BinaryQuadraticModel:
    """Build the QUBO whose minimum is the heaviest choice of clusters that do not overlap."""
    model = dimod.BinaryQuadraticModel("BINARY")
    for number, node in enumerate(graph.nodes):
        model.add_linear(number, -node.weight)
    for first, second in combinations(range(len(graph.nodes)), 2):
        if graph.overlaps[first] >> second & 1:
            model.add_quadratic(first, second, graph.penalty)
    return model


def _shared_points(labels: tuple[Labels, ...], offsets: Indices) -> Indices:
    """Rows (cluster, cluster of a later method, shared points), numbered across methods."""
    total = int(offsets[-1])
    rows = [np.empty((0, 3), dtype=np.int64)]
    for first, second in combinations(range(len(labels)), 2):
        pairs = (labels[first] + offsets[first]) * total + labels[second] + offsets[second]
        found, counts = np.unique(pairs, return_counts=True)
        rows.append(np.stack((found // total, found % total, counts), axis=1))
    return np.concatenate(rows)


def _firsts(shared: Indices, sizes: Indices) -> Indices:
    """For each cluster, the first cluster equal to it."""
    firsts = np.arange(len(sizes))
    for first, second, count in shared.tolist():
        if count == sizes[first] == sizes[second]:
            firsts[second] = min(firsts[second], firsts[first])
    return firsts


def _quality_weights(qualities: Numbers, sizes: Indices, firsts: Indices) -> Numbers:
    """Size times root of quality, scaled to at most 1; equal clusters get the best quality."""
    best = np.full(len(sizes), LEAST_QUALITY)
    np.maximum.at(best, firsts, qualities)
    weights = sizes * np.sqrt(best)
    scaled: Numbers = weights / weights.max()
    return scaled


def _nodes(
    methods: tuple[str, ...], offsets: Indices, sizes: Indices, weights: Numbers, firsts: Indices
) -> tuple[OverlapNode, ...]:
    owners = np.searchsorted(offsets, np.arange(len(sizes)), side="right") - 1
    return tuple(
        OverlapNode(
            tuple(methods[owners[equal]] for equal in np.flatnonzero(firsts == cluster)),
            int(owners[cluster]),
            int(cluster - offsets[owners[cluster]]),
            int(sizes[cluster]),
            float(weights[cluster]),
        )
        for cluster in np.unique(firsts)
    )


def _neighbours(shared: Indices, firsts: Indices) -> tuple[int, ...]:
    """For each node, the nodes that it overlaps, as bits."""
    kept, node_of = np.unique(firsts, return_inverse=True)
    found = [0] * len(kept)
    for first, second in node_of[shared[:, :2]].tolist():
        if first != second:
            found[first] |= 1 << second
            found[second] |= 1 << first
    return tuple(found)
