"""Where to put atoms so that those joined by an edge block one another, and others do not.

That is a unit-disk drawing of the graph. Many random drawings are relaxed at once: edges attract,
non-edges repel, and all atoms keep a minimum distance.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

STARTS = 32
STEPS = 600
FAR = 1.6
"""The target distance of non-edges, if the longest edge is 1."""

NEAREST = 0.6
"""The least distance between any two atoms: traps have a size."""

MARGIN = 1.3
"""The least ratio of the shortest non-edge to the longest edge: interactions differ fivefold."""

Edges = frozenset[tuple[int, int]]
Points = tuple[tuple[float, float], ...]


@lru_cache(maxsize=128)
def layout(atoms: int, edges: Edges) -> tuple[Points, float] | None:
    """Places in units of the longest edge, and their margin; None if none were found."""
    import numpy as np

    adjacent = np.zeros((atoms, atoms), dtype=bool)
    for first, second in edges:
        adjacent[first, second] = adjacent[second, first] = True
    drawings = _relaxed(_starts(adjacent), adjacent)
    longest, apart, nearest = _distances(drawings, adjacent)
    margins = np.where(nearest >= NEAREST * longest, apart / longest, 0.0)
    best = int(margins.argmax())
    if margins[best] < MARGIN:
        return None
    points = drawings[best] / longest[best]
    points -= (points.min(axis=0) + points.max(axis=0)) / 2
    return tuple((float(x), float(y)) for x, y in points), min(float(margins[best]), FAR)


def _starts(adjacent: Any) -> Any:
    """Random drawings; as wide in each direction as a grid of the atoms would be."""
    import numpy as np

    atoms = len(adjacent)
    return np.random.default_rng(0).normal(0, atoms**0.5, (STARTS, atoms, 2))


def _relaxed(points: Any, adjacent: Any) -> Any:
    """The drawings after many small steps; atoms pass through each other at first."""
    import numpy as np

    least = np.where(adjacent, NEAREST * 1.1, FAR)
    most = np.where(adjacent, 1.0, np.inf)
    for step in range(STEPS):
        firmness = min(1.0, 2 * step / STEPS)
        between = points[:, :, None] - points[:, None]
        length = np.sqrt((between**2).sum(axis=-1)) + 1e-9
        push = firmness * np.maximum(0, least - length) - np.maximum(0, length - most)
        np.einsum("sii->si", push)[:] = 0
        points = points + 0.2 * (between * (push / length)[..., None]).sum(axis=2)
    return points


def _distances(drawings: Any, adjacent: Any) -> tuple[Any, Any, Any]:
    """For each drawing its longest edge, its shortest non-edge and its shortest distance."""
    import numpy as np

    between = drawings[:, :, None] - drawings[:, None]
    length = np.sqrt((between**2).sum(axis=-1))
    np.einsum("sii->si", length)[:] = np.inf
    longest = np.where(adjacent, length, 0).max(axis=(1, 2))
    apart = np.where(adjacent, np.inf, length).min(axis=(1, 2))
    longest = np.where(longest > 0, longest, 1.0)
    return longest, apart, length.min(axis=(1, 2))
