"""Random graphs of a few vertices."""

from itertools import combinations

from hypothesis import strategies as st

from qtide.apps.colouring.graph import Graph


@st.composite
def graphs(draw: st.DrawFn, least: int = 1, most: int = 6) -> Graph:
    """Any number of edges."""
    size = draw(st.integers(least, most))
    pairs = list(combinations(range(size), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Graph.of(size, chosen)
