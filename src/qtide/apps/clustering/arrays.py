"""Array types of the application's data, for all modules' signatures."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = NDArray[np.float64]
"""One row per point, one column per dimension."""

Labels: TypeAlias = NDArray[np.int64]
"""The cluster of each point; -1 is DBSCAN's noise."""

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


def compacted(labels: Labels) -> tuple[Labels, int]:
    """Renumber the labels 0…k-1 in ascending order (noise first); return them and k."""
    values, compact = np.unique(labels, return_inverse=True)
    return compact.astype(np.int64), len(values)


def centroids(points: Points, labels: Labels, clusters: int) -> Points:
    """Mean point of each cluster 0…clusters-1, in linear time; no cluster may be empty."""
    sizes = np.bincount(labels, minlength=clusters)
    sums = [np.bincount(labels, weights=column, minlength=clusters) for column in points.T]
    return np.stack(sums, axis=1) / sizes[:, None]
