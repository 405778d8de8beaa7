"""The picture of a colouring, checked by its places and its pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.tasks import draw_colouring, layout
from tests.apps.colouring.graphs import mycielski, queens


@pytest.mark.parametrize("graph", [Graph(1, ()), Graph(7, ()), mycielski(4), queens(5)])
def test_no_two_vertices_lie_on_each_other(graph: Graph) -> None:
    places = layout(graph)
    apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=-1))
    np.fill_diagonal(apart, np.inf)
    assert np.isfinite(places).all()
    assert apart.min() > 0.2
    assert (layout(graph) == places).all()


def test_neighbours_are_nearer_than_others() -> None:
    ring = Graph.of(12, [(n, (n + 1) % 12) for n in range(12)])
    places = layout(ring)
    joined = np.mean([np.hypot(*(places[a] - places[b])) for a, b in ring.edges])
    across = np.mean([np.hypot(*(places[n] - places[(n + 6) % 12])) for n in range(12)])
    assert joined < across / 2


@pytest.mark.parametrize("classes", [1, 4, 15, 30])
def test_each_class_has_its_colour(tmp_path: Path, classes: int) -> None:
    graph, names = Graph(classes, ()), [""] * classes
    draw_colouring(tmp_path / "p.png", graph, list(range(classes)), names, "")
    pixels = (imread(tmp_path / "p.png")[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
    values, counts = np.unique(pixels, axis=0, return_counts=True)
    strong = (counts > 80) & (np.ptp(values, axis=1) > 20) | (counts > 80) & (values.max(1) < 200)
    assert strong.sum() == classes
