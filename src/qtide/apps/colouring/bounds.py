"""Bounds on the number of colours: cliques and Mycielski's construction below, DSATUR above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qtide.apps.colouring.graph import Graph, Masks, bits, everything


@dataclass(frozen=True)
class Bounds:
    """The bounds known before the search."""

    clique: tuple[int, ...]
    lower: int
    support: tuple[int, ...]
    """Vertices whose induced graph needs `lower` colours."""
    classes: tuple[int, ...]


def bounds(graph: Graph, *, greedy: bool) -> Bounds:
    """Compute a clique, a lower bound, and a colouring: greedy, or one colour per vertex."""
    clique = largest_clique(graph.neighbours, everything(graph))
    lower, support = max(
        mycielski(graph.neighbours, everything(graph), clique),
        layered(graph.neighbours, everything(graph)),
        key=lambda found: found[0],
    )
    classes = dsatur(graph.neighbours, everything(graph)) if greedy else _alone(graph)
    return Bounds(tuple(bits(clique)), lower, tuple(bits(support)), tuple(classes))


CLIQUE_BRANCHES = 20_000
"""Most branches of the clique search: less than a second; then the largest so far counts."""


def largest_clique(neighbours: Masks, within: int, most: int = CLIQUE_BRANCHES) -> int:
    """Return the largest clique, or the largest found within `most` branches."""
    best = greedy_clique(neighbours, within)
    stack = [(0, within)]
    while stack and most:
        most -= 1
        clique, free = stack.pop()
        if clique.bit_count() > best.bit_count():
            best = clique
        room = best.bit_count() - clique.bit_count()
        for vertex in _promising(neighbours, free, room):
            stack.append((clique | 1 << vertex, free & neighbours[vertex]))
            free ^= 1 << vertex
    return best


def _promising(neighbours: Masks, free: int, room: int) -> list[int]:
    """Vertices outside `room` greedy colour classes; a clique larger than `room` needs one."""
    covered = 0
    for _ in range(room):
        rest = free & ~covered
        while rest:
            lowest = rest & -rest
            covered |= lowest
            rest &= ~(neighbours[lowest.bit_length() - 1] | lowest)
    return list(bits(free & ~covered))


def greedy_clique(neighbours: Sequence[int], within: int) -> int:
    """Build a clique greedily: always add the vertex that leaves the most candidates."""
    clique = 0
    while within:
        _, vertex = max(((neighbours[v] & within).bit_count(), -v) for v in bits(within))
        clique |= 1 << -vertex
        within &= neighbours[-vertex]
    return clique


def mycielski(neighbours: Masks, within: int, clique: int) -> tuple[int, int]:
    """Return a lower bound, at least the clique's size, and the vertices that prove it.

    Suppose each vertex v of H has a deputy adjacent to all neighbours of v in H, and some vertex w
    is adjacent to all deputies. Then one more colour is needed than for H: otherwise each v with
    w's colour could take its deputy's, and H would not need w's colour.
    """
    bound, support = clique.bit_count(), clique
    while step := _apex(neighbours, within, support):
        bound, support = bound + 1, step
    return bound, support


APEXES, LAYERS = 3, 8
"""Apexes to try at each layer, and the most layers: a graph of eight is beyond all limits."""


def layered(neighbours: Masks, within: int, layers: int = LAYERS) -> tuple[int, int]:
    """Return a lower bound by taking Mycielski's construction apart, with its proof.

    Suppose some vertex w is the apex. The vertices that are not adjacent to it and have a deputy
    among its neighbours form the layer below, which needs one colour less. In Mycielski's own
    graphs, the apex has the highest degree.
    """
    bound, support = mycielski(neighbours, within, greedy_clique(neighbours, within))
    by_degree = sorted(bits(within), key=lambda v: (-(neighbours[v] & within).bit_count(), v))
    seen = set()
    for apex in by_degree[:APEXES]:
        below = _layer_below(neighbours, within, apex)
        if below in seen or below.bit_count() < bound or not layers:
            continue
        seen.add(below)
        inner, proof = layered(neighbours, below, layers - 1)
        if inner >= bound:
            bound, support = inner + 1, proof | 1 << apex
            for vertex in bits(proof):
                able = _deputies(neighbours, neighbours[apex] & within, proof, vertex)
                support |= able & -able
    return bound, support


def _layer_below(neighbours: Masks, within: int, apex: int) -> int:
    """Return the most vertices beside the apex that all have deputies among its neighbours."""
    deputies = neighbours[apex] & within
    layer, before = within & ~(deputies | 1 << apex), -1
    while layer != before:
        before = layer
        for vertex in bits(before):
            if not _deputies(neighbours, deputies, layer, vertex):
                layer ^= 1 << vertex
    return layer


def _apex(neighbours: Masks, within: int, support: int) -> int:
    """Extend the support by deputies and a vertex adjacent to all of them; 0 if there is none."""
    deputies = [(v, _deputies(neighbours, within, support, v)) for v in bits(support)]
    above = within
    for _, those in deputies:
        seen = 0
        for each in bits(those):
            seen |= neighbours[each]
        above &= seen
    if not above:
        return 0
    apex = (above & -above).bit_length() - 1
    grown = support | 1 << apex
    for vertex, those in deputies:
        able = those & neighbours[apex]
        grown |= 1 << vertex if able >> vertex & 1 else able & -able
    return grown


def _deputies(neighbours: Masks, within: int, support: int, vertex: int) -> int:
    able = within
    for each in bits(neighbours[vertex] & support):
        able &= neighbours[each]
    return able


def _alone(graph: Graph) -> list[int]:
    return [1 << vertex for vertex in range(graph.size)]


def dsatur(neighbours: Masks, within: int) -> list[int]:
    """Colour by Brélaz's rule: next is the vertex with the most neighbouring colours.

    Ties go to the vertex with the most uncoloured neighbours.
    """
    classes: list[int] = []
    seen = dict.fromkeys(bits(within), 0)
    left = within
    while left:
        _, _, vertex = max(
            (seen[v].bit_count(), (neighbours[v] & left).bit_count(), -v) for v in bits(left)
        )
        vertex = -vertex
        colour = _first_free(classes, neighbours[vertex])
        classes[colour] |= 1 << vertex
        left ^= 1 << vertex
        for each in bits(neighbours[vertex] & left):
            seen[each] |= 1 << colour
    return classes


def extended(neighbours: Masks, classes: list[int], vertices: list[int]) -> list[int]:
    """Add vertices to the classes, each to the first class without a neighbour of it."""
    classes = list(classes)
    for vertex in vertices:
        classes[_first_free(classes, neighbours[vertex])] |= 1 << vertex
    return classes


def _first_free(classes: list[int], neighbours: int) -> int:
    for number, each in enumerate(classes):
        if not each & neighbours:
            return number
    classes.append(0)
    return len(classes) - 1
