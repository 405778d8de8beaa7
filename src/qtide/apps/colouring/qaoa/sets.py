"""Independent sets from measured bit strings: none is given as it was measured unless it is one."""

from __future__ import annotations

from collections.abc import Mapping

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.independent import maximal, repaired
from qtide.apps.colouring.masks import bits, everything


def independent_sets(graph: Graph, counts: Mapping[int, int], most: int) -> list[frozenset[int]]:
    """The largest sets, the most frequent of equal ones first; bit v of a string is vertex v.

    In a string with edges inside, the vertex with the most of them leaves, again and again. Then
    vertices that still fit join, those that exclude the fewest others first.
    """
    found: dict[int, int] = {}
    for string, count in counts.items():
        alone = repaired(graph.neighbours, string)
        chosen = maximal(graph.neighbours, everything(graph), alone)
        found[chosen] = found.get(chosen, 0) + count
    best = sorted(found, key=lambda mask: (-mask.bit_count(), -found[mask], mask))
    return [frozenset(bits(mask)) for mask in best[:most]]
