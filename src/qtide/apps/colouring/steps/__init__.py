"""Steps: the ways to find independent sets. Further ones are found by entry points."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from qtide.apps.colouring.graph import Graph
from qtide.plugins import Plugins

Step = Callable[[Graph, int], Awaitable[list[frozenset[int]]]]
"""Takes a graph with edges and a seed, awaits phases, and gives sets that should be independent.

Whatever it gives is verified; the better its sets are, the sooner a good colouring is found.
"""

STEPS: Plugins[Step] = Plugins("qtide.sets", "way to find independent sets")
