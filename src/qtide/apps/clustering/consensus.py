"""From the nodes that a solver chose to one label per point, after repairing overlaps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.overlap import OverlapGraph

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Repair:
    """What was changed in a solver's answer."""

    dropped: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def needed(self) -> bool:
        """Whether anything was changed."""
        return bool(self.dropped or self.added)


def repaired(graph: OverlapGraph, chosen: Iterable[int]) -> tuple[tuple[int, ...], Repair]:
    """A maximal independent set close to the answer: heavy nodes are kept and added first."""
    answer = sorted(set(chosen))
    kept = _heaviest_first(graph, answer, 0)
    full = _heaviest_first(graph, range(len(graph.nodes)), kept)
    dropped = tuple(node for node in answer if not kept >> node & 1)
    final = tuple(node for node in range(len(graph.nodes)) if full >> node & 1)
    return final, Repair(dropped, tuple(node for node in final if not kept >> node & 1))


def _heaviest_first(graph: OverlapGraph, nodes: Iterable[int], kept: int) -> int:
    """Add nodes that overlap no kept one, in descending weight, to the set given as bits."""
    for node in sorted(nodes, key=lambda node: (-graph.nodes[node].weight, node)):
        if not graph.overlaps[node] & kept:
            kept |= 1 << node
    return kept


def consensus_labels(points: Points, graph: OverlapGraph, chosen: tuple[int, ...]) -> Labels:
    """Labels 0…m-1 from the m chosen nodes; uncovered points go to the nearest centroid."""
    if not chosen:
        raise ValueError("A consensus needs at least one chosen cluster; repair the answer first.")
    labels = np.full(len(points), -1, dtype=np.int64)
    centres = np.empty((len(chosen), points.shape[1]))
    for label, node in enumerate(chosen):
        members = graph.members(node)
        labels[members] = label
        centres[label] = points[members].mean(axis=0)
    uncovered = np.flatnonzero(labels < 0)
    for start in range(0, len(uncovered), ROWS_AT_ONCE):
        rows = uncovered[start : start + ROWS_AT_ONCE]
        labels[rows] = _nearest(points[rows], centres)
    return labels


def _nearest(points: Points, centres: Points) -> Labels:
    """The nearest centre of each point."""
    best = np.full(len(points), np.inf)
    labels = np.zeros(len(points), dtype=np.int64)
    for label, centre in enumerate(centres):
        squares = ((points - centre) ** 2).sum(axis=1)
        closer = squares < best
        labels[closer] = label
        best[closer] = squares[closer]
    return labels
