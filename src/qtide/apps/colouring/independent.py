"""Independent sets as bit masks: repair, extend and enumerate them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from qtide.apps.colouring.bounds import dsatur, greedy_clique, mycielski
from qtide.apps.colouring.graph import Graph, Masks, bits, everything, mask_of


def is_independent(neighbours: Masks, chosen: int) -> bool:
    """Whether no two of the chosen vertices are adjacent."""
    return not any(neighbours[vertex] & chosen for vertex in bits(chosen))


def repaired(neighbours: Masks, chosen: int) -> int:
    """Drop vertices, those with the most conflicts first, until the set is independent."""
    while True:
        conflicts = [((neighbours[v] & chosen).bit_count(), v) for v in bits(chosen)]
        worst, vertex = max(conflicts, default=(0, 0))
        if not worst:
            return chosen
        chosen ^= 1 << vertex


def maximal(neighbours: Masks, within: int, chosen: int) -> int:
    """Extend an independent set to a maximal one; add vertices that exclude the fewest first."""
    free = within & ~chosen
    for vertex in bits(chosen):
        free &= ~neighbours[vertex]
    while free:
        _, vertex = min(((neighbours[v] & free).bit_count(), v) for v in bits(free))
        chosen |= 1 << vertex
        free &= ~(neighbours[vertex] | 1 << vertex)
    return chosen


def maximal_sets(neighbours: Masks, within: int) -> Iterator[int]:
    """Yield each maximal independent set among some vertices once (Bron–Kerbosch, Tomita)."""
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
    """Return the first `limit` maximal independent sets found, sorted by size, largest first."""
    found = islice(maximal_sets(graph.neighbours, everything(graph)), limit)
    return [frozenset(bits(mask)) for mask in sorted(found, key=lambda m: (-m.bit_count(), m))]


def verified(neighbours: Masks, within: int, sets: Iterable[frozenset[int]]) -> list[int]:
    """Turn any sets into distinct maximal independent sets, largest first."""
    found = {maximal(neighbours, within, repaired(neighbours, mask_of(s) & within)) for s in sets}
    return sorted(found, key=lambda mask: (-mask.bit_count(), mask))


MOST_SETS, WORK = 64, 500_000
"""Limits on a step's largest sets that are tried as the next class; fewer in large graphs."""


@dataclass(frozen=True)
class Partial:
    """A partial colouring: its classes, the vertices left, and bounds on the colours they need."""

    left: int
    classes: tuple[int, ...] = ()
    lower: int = 0
    rest: tuple[int, ...] | None = None
    """Greedy colouring of the vertices left; None if not requested."""

    @property
    def least(self) -> int:
        """Lower bound on the colours of any completion."""
        return len(self.classes) + self.lower

    @property
    def complete(self) -> tuple[int, ...] | None:
        """Classes of the whole graph; None if no complete colouring is known."""
        rest = () if not self.left else self.rest
        return None if rest is None else self.classes + rest

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Sort key: the most promising partial colouring comes first."""
        known = self.complete
        most = 0 if known is None else len(known)
        return most, self.least, self.left.bit_count(), self.left


def grow(
    graph: Graph, partial: Partial, sets: list[frozenset[int]], *, greedy: bool
) -> list[Partial]:
    """Extend the partial colouring by each of the sets as its next class."""
    most = max(1, min(MOST_SETS, WORK // graph.size**2))
    found = verified(graph.neighbours, partial.left, sets)[:most]
    return [_grown(graph, partial, chosen, greedy=greedy) for chosen in found]


def _grown(graph: Graph, partial: Partial, chosen: int, *, greedy: bool) -> Partial:
    left, classes = partial.left & ~chosen, (*partial.classes, chosen)
    clique = greedy_clique(graph.neighbours, left)
    lower, _ = mycielski(graph.neighbours, left, clique)
    rest = tuple(dsatur(graph.neighbours, left)) if greedy else None
    return Partial(left, classes, lower, rest)


def selected(partials: Iterable[Partial], width: int, fewer_than: int) -> list[Partial]:
    """Keep the `width` best that may need fewer colours than `fewer_than`; one per remainder."""
    best: dict[int, Partial] = {}
    for each in sorted(partials, key=lambda one: one.rank):
        if each.least < fewer_than:
            best.setdefault(each.left, each)
    return list(best.values())[:width]
