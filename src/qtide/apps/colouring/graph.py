"""The graph type of the application: small, immutable, and fast to decompose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

Masks = tuple[int, ...]
"""Bit masks of vertices: the neighbours of each vertex, or the classes of a colouring."""


def everything(graph: Graph) -> int:
    """Return all vertices of a graph as a bit mask."""
    return (1 << graph.size) - 1


def bits(mask: int) -> Iterator[int]:
    """Yield the vertices of a bit mask in ascending order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(vertices: Iterable[int]) -> int:
    """The bit mask of some vertices."""
    mask = 0
    for vertex in vertices:
        mask |= 1 << vertex
    return mask


def components(neighbours: Masks, within: int) -> list[int]:
    """Return the connected components among some vertices as bit masks."""
    found = []
    while within:
        reached = border = within & -within
        while border:
            vertex = border.bit_length() - 1
            fresh = neighbours[vertex] & within & ~reached
            border = (border ^ (1 << vertex)) | fresh
            reached |= fresh
        found.append(reached)
        within &= ~reached
    return found


@dataclass(frozen=True)
class Graph:
    """A simple graph: vertices 0 … size - 1, edges as sorted pairs."""

    size: int
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, size: int, pairs: Iterable[tuple[int, int]]) -> Graph:
        """Build a graph from pairs in any order; duplicates are allowed."""
        return cls(size, tuple(sorted({(min(pair), max(pair)) for pair in pairs})))

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """Neighbours of each vertex as a bit mask."""
        found = [0] * self.size
        for a, b in self.edges:
            found[a] |= 1 << b
            found[b] |= 1 << a
        return tuple(found)

    def subgraph(self, vertices: Iterable[int]) -> Graph:
        """Return the induced graph of these vertices, renumbered in ascending order."""
        place = {vertex: number for number, vertex in enumerate(sorted(set(vertices)))}
        edges = [(place[a], place[b]) for a, b in self.edges if a in place and b in place]
        return Graph(len(place), tuple(edges))

    def components(self) -> list[tuple[int, ...]]:
        """Return the connected components, each sorted, ordered by lowest vertex."""
        left, found = (1 << self.size) - 1, []
        while left:
            reached, border = 0, left & -left
            while border:
                vertex = border.bit_length() - 1
                reached |= 1 << vertex
                border = (border | self.neighbours[vertex]) & ~reached
            left &= ~reached
            found.append(tuple(v for v in range(self.size) if reached >> v & 1))
        return found
