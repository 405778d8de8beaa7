"""How good each cluster of a partition is: its mean silhouette, estimated on a sample."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from qtide.apps.clustering.arrays import Indices, Labels, Numbers, Points, compacted
from qtide.apps.clustering.silhouette import silhouette_samples

SAMPLE = 10_000  # points on which qualities are estimated: 0.1 s, and errors below 0.005
LEAST_OF_A_CLUSTER = 64  # of them per cluster, so that small clusters are estimated too


def qualities(
    points: Points, clusterings: Mapping[str, Labels], *, seed: int = 0
) -> dict[str, Numbers]:
    """The qualities of the clusters of each method."""
    return {
        method: cluster_qualities(points, compacted(labels)[0], seed=seed)
        for method, labels in clusterings.items()
    }


def cluster_qualities(points: Points, labels: Labels, *, seed: int = 0) -> Numbers:
    """An estimate of each cluster's mean silhouette within the partition, for labels 0…k-1."""
    sample = _sample(labels, seed)
    chosen = labels[sample]
    scores = silhouette_samples(points[sample], chosen)
    return np.bincount(chosen, weights=scores) / np.bincount(chosen)


def _sample(labels: Labels, seed: int) -> Indices:
    """Seeded points, the same for all methods, plus more of clusters that have too few."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_cluster = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    firsts = by_cluster[rank < LEAST_OF_A_CLUSTER]
    return np.union1d(shuffled[:SAMPLE], firsts)
