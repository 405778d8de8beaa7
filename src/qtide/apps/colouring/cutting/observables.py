"""The cost as a sum of terms, each a product of one factor per fragment it touches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.graph import Graph

Term = dict[int, NDArray[np.float64]]
"""By the number of a fragment, the factor's value for each of its bit strings."""


def terms_of(graph: Graph, fragments: Sequence[Fragment], penalty: int) -> list[Term]:
    """A term for the inside of each fragment, one for each vertex with edges into another one."""
    bits = final_bits(fragments)
    inside = {number: np.zeros(each.bits.shape[1]) for number, each in enumerate(fragments)}
    for number, bit in bits.values():
        inside[number] -= bit
    across: dict[tuple[int, int], NDArray[np.float64]] = {}
    for a, b in graph.edges:
        (first, bit), (second, other) = bits[a], bits[b]
        if first == second:
            inside[first] += penalty * bit * other
        else:  # all edges of one vertex into a fragment are one factor there
            vertex, number, factor = (a, second, other) if _cut(fragments, a) else (b, first, bit)
            across[vertex, number] = across.get((vertex, number), 0) + penalty * factor
    terms: list[Term] = [{number: factor} for number, factor in inside.items()]
    for (vertex, number), factor in across.items():
        home, bit = bits[vertex]
        terms.append({home: bit, number: factor})
    return terms


def final_bits(
    fragments: Sequence[Fragment],
) -> dict[int, tuple[int, NDArray[np.float64]]]:
    """For each vertex, the fragment that measures it, and its bit in the fragment's bit strings."""
    return {
        fragment.wires[wire].vertex: (number, fragment.bits[wire].astype(np.float64))
        for number, fragment in enumerate(fragments)
        for wire in fragment.final
    }


def _cut(fragments: Sequence[Fragment], vertex: int) -> bool:
    """Whether the vertex' wire is cut: such vertices are the few that have edges across."""
    return any(
        wire.vertex == vertex and wire.leaves is not None
        for fragment in fragments
        for wire in fragment.wires
    )
