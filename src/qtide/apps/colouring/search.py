"""Exact search, within a budget, for a colouring of some vertices with a given number of colours.

Each branch takes a maximal independent set that contains a fixed vertex as a colour class, so no
two branches differ only in the order of colours. Before branching, vertices that cannot affect the
outcome are set aside; branches that leave the same kernel coincide, and it is refuted only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from qtide.apps.colouring.bounds import dsatur, extended, greedy_clique, mycielski
from qtide.apps.colouring.graph import Graph, Masks, bits, components
from qtide.apps.colouring.independent import maximal_sets

MOST_BRANCHES = 5_000
"""Most branches of a piece that is split; with more, it is tried again with a larger budget."""


@dataclass(frozen=True)
class Turn:
    """A class that was taken, and the vertices set aside before it."""

    chosen: int
    aside: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A subproblem: the vertices left, the colours for them, and the turns that led to it."""

    left: int
    colours: int
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class PieceVerdict:
    """The classes of the whole graph if a piece gave them; otherwise the pieces still open."""

    classes: tuple[int, ...] | None
    open: tuple[Piece, ...]
    branches: int
    effort: int


def search_pieces(graph: Graph, pieces: list[Piece], budget: int) -> PieceVerdict:
    """Search the pieces in turn until a colouring is found or the budget is used up."""
    search = ColourSearch(graph.neighbours, budget)
    for number, piece in enumerate(pieces):
        try:
            found = search.colour(piece.left, piece.colours)
        except (OutOfBudget, RecursionError):
            rest = tuple(pieces[number + 1 :])
            return PieceVerdict(None, (*split(graph, piece), *rest), search.branches, search.effort)
        if found is not None:
            return PieceVerdict(whole(graph, piece, found), (), search.branches, search.effort)
    return PieceVerdict(None, (), search.branches, search.effort)


def split(graph: Graph, piece: Piece) -> list[Piece]:
    """Split a piece into its branches; keep it whole if there are too many."""
    kernel, aside = reduced(graph.neighbours, piece.left, piece.colours)
    chosen = list(islice(branches(graph.neighbours, kernel), MOST_BRANCHES + 1))
    if len(chosen) > MOST_BRANCHES:
        return [piece]
    return [
        Piece(kernel & ~each, piece.colours - 1, (*piece.turns, Turn(each, tuple(aside))))
        for each in chosen
    ]


def merged(graph: Graph, pieces: Iterable[Piece]) -> list[Piece]:
    """Keep one piece per kernel: pieces that differ only in earlier turns are equivalent."""
    found: dict[tuple[int, int], Piece] = {}
    for piece in pieces:
        kernel, _ = reduced(graph.neighbours, piece.left, piece.colours)
        found.setdefault((kernel, piece.colours), piece)
    return list(found.values())


def whole(graph: Graph, piece: Piece, classes: list[int]) -> tuple[int, ...]:
    """Complete the classes of a piece's vertices to classes of the whole graph."""
    for turn in reversed(piece.turns):
        classes = extended(graph.neighbours, [turn.chosen, *classes], list(turn.aside[::-1]))
    return tuple(classes)


SORTED = 4096
"""Sets sorted by size at a time; a graph may have more sets than fit into memory."""

SMALL = 32
"""Vertices up to which every branch takes about the same time, a quarter of a millisecond."""


class OutOfBudget(Exception):  # noqa: N818 - what happened
    """The search used up its budget without a verdict."""


class ColourSearch:
    """Searches one graph and remembers what it has refuted."""

    def __init__(self, neighbours: Masks, budget: int) -> None:
        self._neighbours = neighbours
        self._refuted: dict[int, int] = {}
        self._budget = budget
        self.branches = 0
        self.effort = 0
        """Weighted number of branches; large ones count more because they take longer."""

    def colour(self, within: int, colours: int) -> list[int] | None:
        """Colour these vertices with at most `colours` classes; None if that is impossible."""
        self.branches += 1
        self.effort += 1 + (within.bit_count() // SMALL) ** 2
        if self.effort > self._budget:
            raise OutOfBudget
        kernel, aside = reduced(self._neighbours, within, colours)
        found: list[int] = []
        for part in components(self._neighbours, kernel):
            classes = self._kernel(part, colours)
            if classes is None:
                return None
            found = _side_by_side(found, classes)
        return extended(self._neighbours, found, aside[::-1])

    def _kernel(self, within: int, colours: int) -> list[int] | None:
        if colours < 2 or self._refuted.get(within, 0) >= colours:
            return None  # refuted before, or one colour for a kernel, which always has edges
        if colours == 2:
            return _two_classes(self._neighbours, within)
        clique = greedy_clique(self._neighbours, within)
        if mycielski(self._neighbours, within, clique)[0] > colours:
            return None
        classes = dsatur(self._neighbours, within)
        return classes if len(classes) <= colours else self._branch(within, colours)

    def _branch(self, within: int, colours: int) -> list[int] | None:
        for chosen in branches(self._neighbours, within):
            rest = self.colour(within & ~chosen, colours - 1)
            if rest is not None:
                return [chosen, *rest]
        self._refuted[within] = colours
        return None


def branches(neighbours: Masks, within: int) -> Iterator[int]:
    """Yield the maximal independent sets with the vertex of highest degree, largest first.

    They are sorted in batches of `SORTED`. That vertex leaves the fewest others free.
    """
    _, vertex = max(((neighbours[v] & within).bit_count(), -v) for v in bits(within))
    vertex = -vertex
    sets = maximal_sets(neighbours, within & ~(neighbours[vertex] | 1 << vertex))
    while some := sorted(islice(sets, SORTED), key=lambda m: (-m.bit_count(), m)):
        yield from (each | 1 << vertex for each in some)


def reduced(neighbours: Masks, within: int, colours: int) -> tuple[int, list[int]]:
    """Return the kernel of some vertices, and those set aside, in order.

    A vertex with fewer neighbours than colours can be coloured last. A vertex whose neighbours are
    all neighbours of another vertex can take that vertex's colour.
    """
    aside: list[int] = []
    before = -1
    while within != before:
        before = within
        for vertex in bits(before):
            around = neighbours[vertex] & within
            if around.bit_count() < colours or _has_deputy(neighbours, within, vertex, around):
                within ^= 1 << vertex
                aside.append(vertex)
    return within, aside


def _has_deputy(neighbours: Masks, within: int, vertex: int, around: int) -> bool:
    able = within ^ 1 << vertex
    for each in bits(around):
        able &= neighbours[each]
        if not able:
            break
    return bool(able)


def _two_classes(neighbours: Masks, within: int) -> list[int] | None:
    """Return the two sides of a connected graph; None if it is not bipartite."""
    sides = [within & -within, 0]
    fresh, turn = sides[0], 0
    while fresh:
        reached = 0
        for vertex in bits(fresh):
            reached |= neighbours[vertex]
        turn = 1 - turn
        fresh = reached & within & ~sides[turn]
        sides[turn] |= fresh
    return None if sides[0] & sides[1] else sides


def _side_by_side(first: list[int], second: list[int]) -> list[int]:
    """Merge the classes of two parts that no edge joins."""
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    return [a | b for a, b in zip(long, short, strict=False)] + long[len(short) :]
