"""A graph as every part of the application sees it: small, immutable, and fast to take apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Graph:
    """A simple graph: vertices 0 … size - 1, edges as sorted pairs."""

    size: int
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, size: int, pairs: Iterable[tuple[int, int]]) -> Graph:
        """A graph from pairs in any order, each once or several times."""
        return cls(size, tuple(sorted({(min(pair), max(pair)) for pair in pairs})))

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For each vertex its neighbours, as bits."""
        found = [0] * self.size
        for a, b in self.edges:
            found[a] |= 1 << b
            found[b] |= 1 << a
        return tuple(found)

    def subgraph(self, vertices: Iterable[int]) -> Graph:
        """The graph of these vertices alone, renumbered in ascending order."""
        place = {vertex: number for number, vertex in enumerate(sorted(set(vertices)))}
        edges = [(place[a], place[b]) for a, b in self.edges if a in place and b in place]
        return Graph(len(place), tuple(edges))

    def components(self) -> list[tuple[int, ...]]:
        """The connected components, each in ascending order, by their lowest vertex."""
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
