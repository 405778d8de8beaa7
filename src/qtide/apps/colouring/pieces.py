"""The search in pieces, which are tasks: any node can settle one, and the verdicts are the same.

A piece that takes longer than its budget is split into its branches. Budgets are efforts
of the search, not seconds, so what is found does not depend on the nodes or on their speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.greedy import extended
from qtide.apps.colouring.search import OutOfBudget, Search, branches, reduced

MOST_BRANCHES = 5_000
"""A piece with more branches is not split, but tried again with a larger budget."""


@dataclass(frozen=True)
class Turn:
    """A class that was taken, and the vertices that had been set aside before."""

    chosen: int
    aside: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Vertices that are left, the colours for them, and how we got there."""

    left: int
    colours: int
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Classes of the whole graph, if a piece gave them; otherwise the pieces that are open."""

    classes: tuple[int, ...] | None
    open: tuple[Piece, ...]
    branches: int
    effort: int


def settle(graph: Graph, pieces: list[Piece], budget: int) -> Verdict:
    """Search in one piece after the other, until a colouring is found or the budget is used up."""
    search = Search(graph.neighbours, budget)
    for number, piece in enumerate(pieces):
        try:
            found = search.colour(piece.left, piece.colours)
        except (OutOfBudget, RecursionError):
            rest = tuple(pieces[number + 1 :])
            return Verdict(None, (*split(graph, piece), *rest), search.branches, search.effort)
        if found is not None:
            return Verdict(whole(graph, piece, found), (), search.branches, search.effort)
    return Verdict(None, (), search.branches, search.effort)


def split(graph: Graph, piece: Piece) -> list[Piece]:
    """The branches of a piece; the piece itself if they are too many."""
    kernel, aside = reduced(graph.neighbours, piece.left, piece.colours)
    chosen = list(islice(branches(graph.neighbours, kernel), MOST_BRANCHES + 1))
    if len(chosen) > MOST_BRANCHES:
        return [piece]
    return [
        Piece(kernel & ~each, piece.colours - 1, (*piece.turns, Turn(each, tuple(aside))))
        for each in chosen
    ]


def merged(graph: Graph, pieces: Iterable[Piece]) -> list[Piece]:
    """One piece for each kernel: those that differ only in what was taken before are alike."""
    found: dict[tuple[int, int], Piece] = {}
    for piece in pieces:
        kernel, _ = reduced(graph.neighbours, piece.left, piece.colours)
        found.setdefault((kernel, piece.colours), piece)
    return list(found.values())


def whole(graph: Graph, piece: Piece, classes: list[int]) -> tuple[int, ...]:
    """The classes of the whole graph, from those of what a piece had left."""
    for turn in reversed(piece.turns):
        classes = extended(graph.neighbours, [turn.chosen, *classes], list(turn.aside[::-1]))
    return tuple(classes)
