"""Partial colourings, grown class by class from the independent sets that a step has found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qtide.apps.colouring.bounds import greedy_clique, mycielski
from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.greedy import dsatur
from qtide.apps.colouring.independent import verified

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
