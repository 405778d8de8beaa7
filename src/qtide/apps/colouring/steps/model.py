"""Independent sets as a binary quadratic model, which annealers and neutral atoms take."""

from __future__ import annotations

from typing import Any

from qtide.apps.colouring.graph import Graph

PENALTY = 2.0
"""For both ends of an edge; each vertex gains 1, so an edge never pays."""

MOST = 64


def model_of(graph: Graph) -> Any:
    """The model whose best samples are the largest independent sets."""
    import dimod

    linear = dict.fromkeys(range(graph.size), -1.0)
    return dimod.BinaryQuadraticModel(linear, dict.fromkeys(graph.edges, PENALTY), 0.0, "BINARY")


def sets_in(samples: Any) -> list[frozenset[int]]:
    """The vertices that are 1 in the best samples, each set once."""
    sets = (frozenset(v for v, taken in each.items() if taken) for each in samples.samples())
    return list(dict.fromkeys(sets))[:MOST]
