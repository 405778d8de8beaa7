"""Overlap graphs of any shape, made without points."""

from hypothesis import strategies as st

from qtide.apps.clustering.overlap import OverlapGraph, OverlapNode


def graph_of(weights: list[float], edges: set[tuple[int, int]]) -> OverlapGraph:
    """A graph of nodes with these weights and overlaps."""
    overlaps = [0] * len(weights)
    for first, second in edges:
        overlaps[first] |= 1 << second
        overlaps[second] |= 1 << first
    nodes = tuple(
        OverlapNode(("method",), 0, place, 1, weight) for place, weight in enumerate(weights)
    )
    return OverlapGraph(nodes, tuple(overlaps), 2.0, ())


@st.composite
def overlap_graphs(draw: st.DrawFn, most: int = 10) -> OverlapGraph:
    """Graphs with equal and different weights, sparse to complete."""
    weights = draw(st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.7, 1.0]), min_size=1, max_size=most))
    pairs = [(i, j) for j in range(len(weights)) for i in range(j)]
    edges = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    return graph_of(weights, edges)


def independent(graph: OverlapGraph, chosen: tuple[int, ...]) -> bool:
    """Whether no two of the chosen nodes overlap."""
    mask = sum(1 << node for node in chosen)
    return all(graph.overlaps[node] & mask == 0 for node in chosen)
