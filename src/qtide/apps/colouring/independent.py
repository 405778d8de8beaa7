"""Independent sets as bit masks: repaired, made maximal, enumerated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.masks import Masks, bits, everything, mask_of


def is_independent(neighbours: Masks, chosen: int) -> bool:
    """Whether no two of the vertices are joined."""
    return not any(neighbours[vertex] & chosen for vertex in bits(chosen))


def repaired(neighbours: Masks, chosen: int) -> int:
    """An independent part of a set: vertices leave one by one, those in most conflicts first."""
    while True:
        conflicts = [((neighbours[v] & chosen).bit_count(), v) for v in bits(chosen)]
        worst, vertex = max(conflicts, default=(0, 0))
        if not worst:
            return chosen
        chosen ^= 1 << vertex


def maximal(neighbours: Masks, within: int, chosen: int) -> int:
    """An independent set, filled up: vertices that exclude the fewest others come first."""
    free = within & ~chosen
    for vertex in bits(chosen):
        free &= ~neighbours[vertex]
    while free:
        _, vertex = min(((neighbours[v] & free).bit_count(), v) for v in bits(free))
        chosen |= 1 << vertex
        free &= ~(neighbours[vertex] | 1 << vertex)
    return chosen


def maximal_sets(neighbours: Masks, within: int) -> Iterator[int]:
    """All maximal independent sets among some vertices, each once (Bron and Kerbosch, Tomita)."""
    if not within:
        yield 0
        return
    stack = [(0, within, 0)]
    while stack:
        chosen, free, done = stack.pop()
        if not free:
            if not done:
                yield chosen
            continue
        pivot = min(bits(free | done), key=lambda v: (free & (neighbours[v] | 1 << v)).bit_count())
        for vertex in bits(free & (neighbours[pivot] | 1 << pivot)):
            blocked = ~(neighbours[vertex] | 1 << vertex)
            stack.append((chosen | 1 << vertex, free & blocked, done & blocked))
            free ^= 1 << vertex
            done |= 1 << vertex


def some_maximal_sets(graph: Graph, limit: int) -> list[frozenset[int]]:
    """The first maximal independent sets of a graph, the largest first."""
    found = islice(maximal_sets(graph.neighbours, everything(graph)), limit)
    return [frozenset(bits(mask)) for mask in sorted(found, key=lambda m: (-m.bit_count(), m))]


def verified(neighbours: Masks, within: int, sets: Iterable[frozenset[int]]) -> list[int]:
    """What a step has found, whatever that was: independent, maximal, each once, largest first."""
    found = {maximal(neighbours, within, repaired(neighbours, mask_of(s) & within)) for s in sets}
    return sorted(found, key=lambda mask: (-mask.bit_count(), mask))
