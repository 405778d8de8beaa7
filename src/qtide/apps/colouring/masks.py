"""Sets of vertices as bit masks: to combine two of them is one operation of the processor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qtide.apps.colouring.graph import Graph

Masks = tuple[int, ...]
"""The neighbours of each vertex, or the classes of a colouring."""


def everything(graph: Graph) -> int:
    """All vertices of a graph."""
    return (1 << graph.size) - 1


def bits(mask: int) -> Iterator[int]:
    """The vertices of a bit mask, in ascending order."""
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
    """The connected components among some vertices."""
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
