"""Greedy colourings: an upper bound within milliseconds."""

from __future__ import annotations

from qtide.apps.colouring.masks import Masks, bits


def dsatur(neighbours: Masks, within: int) -> list[int]:
    """Colour classes by Brélaz' rule: next is who sees the most colours, then the most others."""
    classes: list[int] = []
    seen = dict.fromkeys(bits(within), 0)
    left = within
    while left:
        _, _, vertex = max(
            (seen[v].bit_count(), (neighbours[v] & left).bit_count(), -v) for v in bits(left)
        )
        vertex = -vertex
        colour = _first_free(classes, neighbours[vertex])
        classes[colour] |= 1 << vertex
        left ^= 1 << vertex
        for each in bits(neighbours[vertex] & left):
            seen[each] |= 1 << colour
    return classes


def extended(neighbours: Masks, classes: list[int], vertices: list[int]) -> list[int]:
    """Classes with more vertices, each in the first class that is free of its neighbours."""
    classes = list(classes)
    for vertex in vertices:
        classes[_first_free(classes, neighbours[vertex])] |= 1 << vertex
    return classes


def _first_free(classes: list[int], neighbours: int) -> int:
    for number, each in enumerate(classes):
        if not each & neighbours:
            return number
    classes.append(0)
    return len(classes) - 1
