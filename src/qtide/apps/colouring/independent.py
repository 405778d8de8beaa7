"""Independent sets as bit masks: repaired, made maximal, enumerated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from qtide.apps.colouring.bounds import dsatur, greedy_clique, mycielski
from qtide.apps.colouring.graph import Graph, Masks, bits, everything, mask_of


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


MOST_SETS, WORK = 64, 500_000
"""The largest sets of a step that are tried as the next class; fewer in graphs that take long."""


@dataclass(frozen=True)
class Partial:
    """Classes taken so far, the vertices left, and the fewest and most colours they will take."""

    left: int
    classes: tuple[int, ...] = ()
    lower: int = 0
    rest: tuple[int, ...] | None = None
    """A greedy colouring of what is left, if one was wanted."""

    @property
    def least(self) -> int:
        """Colours that it will have at least."""
        return len(self.classes) + self.lower

    @property
    def complete(self) -> tuple[int, ...] | None:
        """The classes of the whole graph, as far as they are known."""
        rest = () if not self.left else self.rest
        return None if rest is None else self.classes + rest

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The most promising first."""
        known = self.complete
        most = 0 if known is None else len(known)
        return most, self.least, self.left.bit_count(), self.left


def grow(
    graph: Graph, partial: Partial, sets: list[frozenset[int]], *, greedy: bool
) -> list[Partial]:
    """The partial colouring with each of the sets as its next class."""
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
    """The most promising that can still get below a number of colours; equal remainders once."""
    best: dict[int, Partial] = {}
    for each in sorted(partials, key=lambda one: one.rank):
        if each.least < fewer_than:
            best.setdefault(each.left, each)
    return list(best.values())[:width]
