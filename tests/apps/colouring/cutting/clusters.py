"""Random clustered graphs with their partition, and what is expected of their samples."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from hypothesis import strategies as st
from scipy.stats import chisquare

from qtide.apps.colouring.cutting.cut_circuit import CutCircuit
from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from qtide.apps.colouring.graph import Graph

PUBLISHED = GraphPartition(
    Graph.of(
        8,
        [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (2, 4), (4, 5), (4, 6), (5, 6), (6, 7), (5, 7)],
    ),
    (4,),
    ((0, 1, 2, 3), (5, 6, 7)),
)
"""Eight vertices, one separator: 5 and 4 qubits."""


@st.composite
def partitions(draw: st.DrawFn) -> GraphPartition:
    """One or two separators, one to three parts of at most three vertices, any edges between."""
    separators = tuple(range(draw(st.integers(1, 2))))
    parts, size = [], len(separators)
    for length in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
        parts.append(tuple(range(size, size + length)))
        size += length
    pairs = [pair for part in parts for pair in combinations((*separators, *part), 2)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    return GraphPartition(Graph.of(size, edges), separators, tuple(parts))


@st.composite
def cut_circuits(draw: st.DrawFn) -> CutCircuit:
    """Depth one, or two if that takes at most four cuts."""
    partition = draw(partitions())
    deep = CutCircuit(partition, 2)
    return deep if deep.cuts <= 4 and draw(st.booleans()) else CutCircuit(partition, 1)


def some_angles(circuit: CutCircuit, seed: int) -> np.ndarray:
    """Random angles for its depth."""
    return np.random.default_rng(seed).normal(size=2 * len(circuit.fragments[0].layers))


def fit(counts: Mapping[int, int], probabilities: np.ndarray) -> float:
    """The p-value of a χ² test; rare bit strings share a bin."""
    observed = np.zeros(len(probabilities))
    observed[list(counts)] = list(counts.values())
    expected = probabilities * observed.sum()
    order = np.argsort(expected)
    bins = np.floor(np.cumsum(expected[order]) / 10).astype(int)
    both = [np.bincount(bins, weights=each[order]) for each in (observed, expected)]
    seen, due = (each[both[1] > 5] for each in both)
    if len(seen) < 2:
        return 1.0
    return float(chisquare(seen, due * seen.sum() / due.sum())[1])
