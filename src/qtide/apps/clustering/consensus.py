"""Turn a solver's chosen nodes into one label per point, after repairing overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qtide.apps.clustering.arrays import Labels, Points
from qtide.apps.clustering.overlap import OverlapGraph

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class Repair:
    """Changes made to a solver's answer."""

    dropped: tuple[int, ...]
    added: tuple[int, ...]

    @property
    def needed(self) -> bool:
        """Whether anything was changed."""
        return bool(self.dropped or self.added)


def repaired(graph: OverlapGraph, chosen: Iterable[int]) -> tuple[tuple[int, ...], Repair]:
    """Repair the answer to a maximal independent set; keep and add heavy nodes first."""
    answer = sorted(set(chosen))
    kept = _heaviest_first(graph, answer, 0)
    full = _heaviest_first(graph, range(len(graph.nodes)), kept)
    dropped = tuple(node for node in answer if not kept >> node & 1)
    final = tuple(node for node in range(len(graph.nodes)) if full >> node & 1)
    return final, Repair(dropped, tuple(node for node in final if not kept >> node & 1))


def _heaviest_first(graph: OverlapGraph, nodes: Iterable[int], kept: int) -> int:
    """Add nodes, heaviest first, that overlap no kept node, to the set given as bits."""
    for node in sorted(nodes, key=lambda node: (-graph.nodes[node].weight, node)):
        if not graph.overlaps[node] & kept:
            kept |= 1 << node
    return kept


def consensus_labels(points: Points, graph: OverlapGraph, chosen: tuple[int, ...]) -> Labels:
    """Label points 0…m-1 by the m chosen nodes; uncovered points join the nearest centroid."""
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


def best_independent_set(weights: Sequence[float], overlaps: Sequence[int]) -> tuple[int, ...]:
    """Find the heaviest set of nodes that do not overlap; for up to about 60 nodes."""
    useful = sum(1 << node for node, weight in enumerate(weights) if weight > 0)
    chosen = 0
    for component in _components(useful, overlaps):
        chosen |= _Search(weights, overlaps).best_of(component)
    return tuple(_bits(chosen))


def gap(graph: OverlapGraph, chosen: tuple[int, ...]) -> float:
    """Relative gap between the chosen nodes' weight and the greatest possible weight."""
    best = graph.weight(best_independent_set(graph.weights, graph.overlaps))
    return (best - graph.weight(chosen)) / best


class _Search:
    """Branch and bound in one component; keeps the best set found so far."""

    def __init__(self, weights: Sequence[float], overlaps: Sequence[int]) -> None:
        self._weights = weights
        self._overlaps = overlaps
        self._best_weight = -1.0
        self._best = 0

    def best_of(self, candidates: int) -> int:
        self._branch(candidates, 0, 0.0)
        return self._best

    def _branch(self, candidates: int, chosen: int, weight: float) -> None:
        if weight > self._best_weight:
            self._best_weight, self._best = weight, chosen
        if not candidates or weight + self._bound(candidates) <= self._best_weight:
            return
        node = self._most_entangled(candidates)
        rest = candidates & ~(1 << node)
        self._branch(rest & ~self._overlaps[node], chosen | 1 << node, weight + self._weights[node])
        if candidates & self._overlaps[node]:
            self._branch(rest, chosen, weight)

    def _most_entangled(self, candidates: int) -> int:
        """Return the candidate with the most overlaps; break ties by weight, then by number."""

        def key(node: int) -> tuple[int, float, int]:
            entangled = (candidates & self._overlaps[node]).bit_count()
            return entangled, self._weights[node], -node

        return max(_bits(candidates), key=key)

    def _bound(self, candidates: int) -> float:
        """Upper bound: the sum of the heaviest nodes of cliques that cover the candidates."""
        total = 0.0
        cliques: list[int] = []
        for node in sorted(_bits(candidates), key=lambda node: -self._weights[node]):
            for number, clique in enumerate(cliques):
                if clique & ~self._overlaps[node] == 0:
                    cliques[number] = clique | 1 << node
                    break
            else:
                cliques.append(1 << node)
                total += self._weights[node]
        return total


def _components(candidates: int, overlaps: Sequence[int]) -> Iterator[int]:
    """Yield the connected components of the candidates, each as bits."""
    while candidates:
        component, frontier = 0, candidates & -candidates
        while frontier:
            component |= frontier
            reached = 0
            for node in _bits(frontier):
                reached |= overlaps[node]
            frontier = reached & candidates & ~component
        yield component
        candidates &= ~component


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the ones in ascending order."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
