"""Dividing the points among tasks, and merging the parts of a silhouette."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from qtide.apps.clustering.arrays import Numbers


def equal_parts(points: int, count: int) -> list[tuple[int, int]]:
    """At most `count` ranges [start, stop) of nearly equal length that cover all points."""
    edges = np.unique(np.linspace(0, points, min(count, points) + 1).astype(int))
    return [(int(start), int(stop)) for start, stop in pairwise(edges)]


def merged_silhouette(parts: Iterable[Numbers]) -> float:
    """The overall score from the parts that cover all points, in their order."""
    return float(np.concatenate(list(parts)).mean())
