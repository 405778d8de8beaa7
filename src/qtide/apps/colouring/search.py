"""Exact search, within a budget, for a colouring with a given number of colours.

First, vertices that cannot affect the outcome are set aside, and vertices that must have the same
colour become one. Then a branch colours the vertex with the fewest colours left (DSATUR), with each
of these in turn; of the colours that no vertex has yet, one is enough, as they are all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qtide.apps.colouring.bounds import dsatur, extended, greedy_clique, mycielski
from qtide.apps.colouring.graph import Graph, Masks, bits, everything


@dataclass(frozen=True)
class Kernel:
    """What is left of a graph if it is to be coloured with a number of colours."""

    colours: int
    neighbours: Masks
    """Of the vertices that are left; one stands for those that must have its colour."""
    left: int
    aside: tuple[int, ...] = ()
    """Vertices set aside, in order."""
    same: tuple[tuple[int, int], ...] = ()
    """Vertices that take the colour of another one, in order."""
    refuted: bool = False
    """Whether so few colours cannot suffice."""

    def whole(self, classes: Sequence[int]) -> tuple[int, ...]:
        """Complete the classes of what is left to classes of the whole graph."""
        found = extended(self.neighbours, list(classes), list(self.aside[::-1]))
        for vertex, other in reversed(self.same):
            place = next(n for n, each in enumerate(found) if each >> other & 1)
            found[place] |= 1 << vertex
        return tuple(found)


def kernel_of(graph: Graph, colours: int) -> Kernel:
    """Reduce a graph as far as possible, and look for a bound that rules the colours out.

    A vertex with fewer neighbours than colours can be coloured last. A vertex whose neighbours are
    all neighbours of another vertex can take that vertex's colour. Two vertices that are adjacent
    to the same clique of one vertex less than the colours must have the same colour.
    """
    neighbours, left = list(graph.neighbours), everything(graph)
    if colours < 1:
        return Kernel(colours, graph.neighbours, left, refuted=bool(left))
    aside: list[int] = []
    same: list[tuple[int, int]] = []
    before = -1
    while left != before:
        before = left
        for vertex in bits(before):
            around = neighbours[vertex] & left
            if around.bit_count() < colours or _has_deputy(neighbours, left, vertex, around):
                left ^= 1 << vertex
                aside.append(vertex)
        pairs = _forced(neighbours, left, colours)
        if pairs is None:
            return Kernel(colours, tuple(neighbours), left, refuted=True)
        for vertex, _ in pairs:
            left ^= 1 << vertex
        same += pairs
    masks = tuple(neighbours)
    clique = greedy_clique(masks, left)
    refuted = mycielski(masks, left, clique)[0] > colours
    return Kernel(colours, masks, left, tuple(aside), tuple(same), refuted)


MOST_PAIRS = 100_000
"""Pairs of vertices to compare in one pass: less than half a second."""


def _forced(neighbours: list[int], left: int, colours: int) -> list[tuple[int, int]] | None:
    """Merge vertices that must have the same colour; None if two of them are adjacent.

    Return each merged vertex with the one that it is merged into.
    """
    merged: list[tuple[int, int]] = []
    pairs = 0
    for vertex in bits(left):
        if not left >> vertex & 1:
            continue
        near = 0
        for each in bits(neighbours[vertex] & left):
            near |= neighbours[each]
        for other in bits(near & left & -(2 << vertex)):
            common = neighbours[vertex] & neighbours[other] & left
            pairs += 1
            if pairs > MOST_PAIRS:
                return merged
            if common.bit_count() < colours - 1:
                continue
            if greedy_clique(neighbours, common).bit_count() < colours - 1:
                continue
            if neighbours[vertex] >> other & 1:
                return None
            left ^= 1 << other
            merged.append((other, vertex))
            for each in bits(neighbours[other]):
                neighbours[each] = neighbours[each] & ~(1 << other) | 1 << vertex
            neighbours[vertex] |= neighbours[other]
    return merged


def _has_deputy(neighbours: list[int], within: int, vertex: int, around: int) -> bool:
    able = within ^ 1 << vertex
    for each in bits(around):
        able &= neighbours[each]
        if not able:
            break
    return bool(able)


Piece = tuple[int, ...]
"""A part of the search tree: the classes that every colouring in it extends."""


@dataclass(frozen=True)
class PieceVerdict:
    """The classes of the whole graph if a piece gave them; otherwise the pieces still open."""

    classes: tuple[int, ...] | None
    open: tuple[Piece, ...]
    branches: int
    effort: int
    refuted: bool = False
    """Whether there is no colouring at all, whatever the other pieces contain."""


SMALL = 64
"""Vertices up to which every branch takes about the same time, some ten microseconds."""


def search_pieces(kernel: Kernel, pieces: Sequence[Piece], budget: int) -> PieceVerdict:
    """Search the pieces in turn until a colouring is found or the budget is used up."""
    weight, branches = 1 + kernel.left.bit_count() // SMALL, 0
    for number, piece in enumerate(pieces):
        stack, alone = [_Branch.of(kernel, piece)], False
        while stack:
            if branches * weight >= budget:
                rest = tuple(each.classes for each in stack) + tuple(pieces[number + 1 :])
                return PieceVerdict(None, rest, branches, branches * weight)
            branches += 1
            branch = stack.pop()
            if not branch.left:
                found = kernel.whole(branch.classes)
                return PieceVerdict(found, (), branches, branches * weight)
            vertex = branch.next_vertex(kernel.neighbours)
            if branch.classes and branch.free[vertex].bit_count() == kernel.colours:
                # No edge joins the rest to what is coloured, so other colours there do not help it.
                stack.clear()
                alone = True
            stack += branch.grown(kernel.neighbours, vertex)
        if alone:
            return PieceVerdict(None, (), branches, branches * weight, refuted=True)
    return PieceVerdict(None, (), branches, branches * weight)


def first_piece(kernel: Kernel) -> PieceVerdict:
    """Return the whole tree as one piece; if DSATUR's rule alone decides, the verdict."""
    if kernel.refuted:
        return PieceVerdict(None, (), 0, 0, refuted=True)
    classes = dsatur(kernel.neighbours, kernel.left)
    if len(classes) <= kernel.colours:
        return PieceVerdict(kernel.whole(classes), (), 0, 0)
    return PieceVerdict(None, ((),), 0, 0)


@dataclass(frozen=True)
class _Branch:
    """A partial colouring: its classes, the vertices left, and each vertex's free colours."""

    classes: tuple[int, ...]
    left: int
    free: list[int]

    @staticmethod
    def of(kernel: Kernel, classes: tuple[int, ...]) -> _Branch:
        """Build from the classes alone."""
        free = []
        for around in kernel.neighbours:
            taken = sum(1 << n for n, each in enumerate(classes) if each & around)
            free.append(((1 << kernel.colours) - 1) & ~taken)
        return _Branch(classes, kernel.left & ~sum(classes), free)

    def next_vertex(self, neighbours: Masks) -> int:
        """Return the vertex with the fewest free colours, of these the one with most neighbours."""
        left, free = self.left, self.free
        return min(
            bits(left), key=lambda v: (free[v].bit_count(), -(neighbours[v] & left).bit_count())
        )

    def grown(self, neighbours: Masks, vertex: int) -> list[_Branch]:
        """Return the branches with the vertex coloured; the most promising one comes last."""
        found = []
        left = self.left ^ 1 << vertex
        colours = self.free[vertex] & ((2 << len(self.classes)) - 1)
        for colour in bits(colours):
            free, taken = self.free.copy(), 1 << colour
            for each in bits(neighbours[vertex] & left):
                free[each] &= ~taken
                if not free[each]:
                    break
            else:
                classes = list(self.classes) + [0] * (colour == len(self.classes))
                classes[colour] |= 1 << vertex
                found.append(_Branch(tuple(classes), left, free))
        return found[::-1]
