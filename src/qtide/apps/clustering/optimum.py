"""The exact maximum-weight independent set, to compare the QPU's answer with.

Branch and bound over bit sets. At most one node of a set of pairwise overlapping ones can be
chosen, so a cover of the candidates by such cliques bounds what they can still add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qtide.apps.clustering.overlap import OverlapGraph


def best_independent_set(weights: Sequence[float], overlaps: Sequence[int]) -> tuple[int, ...]:
    """The nodes of greatest total weight of which no two overlap; for up to about 60 nodes."""
    useful = sum(1 << node for node, weight in enumerate(weights) if weight > 0)
    chosen = 0
    for component in _components(useful, overlaps):
        chosen |= _Search(weights, overlaps).best_of(component)
    return tuple(_bits(chosen))


def gap(graph: OverlapGraph, chosen: tuple[int, ...]) -> float:
    """The relative gap between the chosen nodes' weight and the greatest possible."""
    best = graph.weight(best_independent_set(graph.weights, graph.overlaps))
    return (best - graph.weight(chosen)) / best


class _Search:
    """The best set found so far in one component, and the branching that improves it."""

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
        """The candidate with the most overlaps; of equals, the heavier, then the first."""

        def key(node: int) -> tuple[int, float, int]:
            entangled = (candidates & self._overlaps[node]).bit_count()
            return entangled, self._weights[node], -node

        return max(_bits(candidates), key=key)

    def _bound(self, candidates: int) -> float:
        """The sum of the heaviest nodes of cliques that cover the candidates."""
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
    """The connected parts of the graph, each as bits."""
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
    """The positions of the ones, ascending."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1
