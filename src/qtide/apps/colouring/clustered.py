"""(K,d)-clustered graphs: without K separating vertices, components of at most d vertices remain.

Such graphs are what circuit cutting can handle: each cut goes through a separating vertex.
"""

from __future__ import annotations

import random
from itertools import combinations

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.reading import GraphError, Named, check_size

DENSITY = 0.5
"""The share of possible edges within a cluster, beside those that connect it."""


def clustered(separators: int, largest: int, vertices: int, seed: int) -> Named:
    """A random one that is connected; the separating vertices come first."""
    source = f"clustered({separators},{largest},{vertices})"
    check_size(vertices, source)
    if not 1 <= separators < vertices or largest < 1:
        raise GraphError(
            f"--clustered {separators},{largest},{vertices}: give K, d and n with"
            " 1 <= K < n and d >= 1, as in 1,4,9."
        )
    chance = random.Random(f"{source} {seed}")
    pairs = set(zip(range(separators - 1), range(1, separators), strict=True))
    for first in range(separators, vertices, largest):
        members = range(first, min(first + largest, vertices))
        pairs |= _cluster(members, chance) | _links(separators, members, chance)
    return Named(Graph.of(vertices, pairs), tuple(map(str, range(vertices))), source)


def _cluster(members: range, chance: random.Random) -> set[tuple[int, int]]:
    """A random tree, and half of the other edges."""
    tree = {(chance.randrange(members.start, each), each) for each in members[1:]}
    return tree | {pair for pair in combinations(members, 2) if chance.random() < DENSITY}


def _links(separators: int, members: range, chance: random.Random) -> set[tuple[int, int]]:
    """Each separating vertex touches the cluster, once or more often."""
    return {
        (each, member)
        for each in range(separators)
        for member in chance.sample(members, chance.randint(1, len(members)))
    }
