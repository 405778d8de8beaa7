"""Fragments: the parts of a cut QAOA circuit, each of which runs on the device by itself.

A cut wire leaves one fragment, which measures it in three bases, and enters another, which prepares
it in four states. Fragments exchange no outcomes while they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.graph import Graph

PREPARATIONS = ("0", "1", "+", "i")
BASES = ("Z", "X", "Y")

AMPLITUDES = np.array([[1, 0], [0, 1], [0.5**0.5, 0.5**0.5], [0.5**0.5, 1j * 0.5**0.5]])
"""Amplitudes of each preparation, in the order of PREPARATIONS."""

FROM_PREPARATIONS = np.array([[1, 1, 0, 0], [-1, -1, 2, 0], [-1, -1, 0, 2], [1, -1, 0, 0]]) / 2
"""I, X, Y and Z (rows) as sums of the prepared states; includes the factor 1/2 of each cut."""

FROM_OUTCOMES = np.zeros((4, 3, 2))
"""The expectation values of I, X, Y and Z by basis and outcome."""
FROM_OUTCOMES[0] = 1 / 3
FROM_OUTCOMES[1, 1] = FROM_OUTCOMES[2, 2] = FROM_OUTCOMES[3, 0] = (1, -1)

SAMPLING_OVERHEAD = 16
"""Theoretical factor on the shots, per cut wire, for the same error: the square of the summed
weights of eight products of measurement and preparation, 1/2 each. Measured for one cut, the median
is 5, and 99 of 100 random circuits stay below 13."""


@cache
def preparation_matrix(wires: int) -> NDArray[np.float64]:
    """Pauli operators on several wires (rows) by preparations; the first wire varies slowest."""
    matrix: NDArray[np.float64] = np.ones((1, 1))
    for _ in range(wires):
        matrix = np.kron(matrix, FROM_PREPARATIONS).astype(np.float64)
    return matrix


@cache
def outcome_matrix(wires: int) -> NDArray[np.float64]:
    """Expectation values (rows) by the bases of all wires, then by the outcomes of all wires."""
    matrix = np.ones(())
    for _ in range(wires):
        matrix = np.multiply.outer(matrix, FROM_OUTCOMES)
    axes = [3 * n + kind for kind in range(3) for n in range(wires)]
    return matrix.transpose(axes).reshape(4**wires, 6**wires)


@dataclass(frozen=True)
class Wire:
    """A qubit of a fragment: the whole wire of a vertex, or a piece of it between cuts."""

    vertex: int
    enters: int | None = None
    """Number of the cut at which it begins; None if it begins with the circuit."""
    leaves: int | None = None
    """Number of the cut at which it ends; None if its measured bit is part of the answer."""


@dataclass(frozen=True)
class Layer:
    """One QAOA layer of a fragment; wires are given by their index in the fragment."""

    vertices: tuple[int, ...]
    """Wires that get the phase of a vertex."""
    edges: tuple[tuple[int, int], ...]
    """Pairs of wires that get the phase of an edge."""
    mixed: tuple[int, ...]
    """Wires to which the mixer applies."""


@dataclass(frozen=True)
class Fragment:
    """Wires and layers of a fragment, independent of the angles."""

    wires: tuple[Wire, ...]
    layers: tuple[Layer, ...]

    @cached_property
    def entering(self) -> tuple[int, ...]:
        """Wires that begin at a cut."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.enters is not None)

    @cached_property
    def leaving(self) -> tuple[int, ...]:
        """Wires that end at a cut."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.leaves is not None)

    @cached_property
    def final(self) -> tuple[int, ...]:
        """Wires whose measured bit is a vertex of the answer."""
        return tuple(n for n, wire in enumerate(self.wires) if wire.leaves is None)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Cuts at which wires enter, then cuts at which wires leave."""
        enters = [self.wires[n].enters for n in self.entering]
        leaves = [self.wires[n].leaves for n in self.leaving]
        return tuple(cut for cut in enters + leaves if cut is not None)

    @property
    def circuits(self) -> int:
        """Number of circuits: every preparation with every basis."""
        count: int = len(PREPARATIONS) ** len(self.entering) * len(BASES) ** len(self.leaving)
        return count

    def costs(self, penalty: int) -> NDArray[np.int32]:
        """For each layer, the cost of each bit string, which determines its phase."""
        bits = self.bits
        rows = [
            penalty * sum((bits[a] & bits[b] for a, b in layer.edges), np.zeros_like(bits[0]))
            - sum((bits[n] for n in layer.vertices), np.zeros_like(bits[0]))
            for layer in self.layers
        ]
        return np.array(rows, dtype=np.int32)

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """For each wire, its bit in every bit string."""
        strings = np.arange(1 << len(self.wires))
        return np.stack([strings >> n & 1 for n in range(len(self.wires))])


Frequencies = NDArray[np.float64]
"""Exact or measured frequencies of a fragment, indexed by preparation, basis and bit string."""

Tensor = NDArray[np.float64]
"""Indexed by observable (or final bits), then by the Pauli operators at the fragment's cuts."""


class Reduction:
    """The linear map from frequencies to the tensor of given observables of the final bits."""

    def __init__(self, fragment: Fragment, observables: NDArray[np.float64]) -> None:
        self._fragment = fragment
        outcomes = 1 << len(fragment.leaving)
        self._shape = (len(observables), outcomes)
        chosen = np.eye(outcomes)[outcomes_at_cuts(fragment)]
        self._weights = (observables.T[:, :, None] * chosen[:, None, :]).reshape(len(chosen), -1)

    def tensor(self, frequencies: Frequencies) -> Tensor:
        """Compute the mean of each observable, by operators at the cuts."""
        found = (frequencies @ self._weights).reshape(*frequencies.shape[:2], *self._shape)
        return by_operators(self._fragment, found)

    def slopes(self, tensor_slopes: Tensor) -> Frequencies:
        """Derivatives with respect to each frequency, given those for each tensor entry."""
        observables, outcomes = self._shape
        entering = preparation_matrix(len(self._fragment.entering))
        leaving = outcome_matrix(len(self._fragment.leaving))
        inner = tensor_slopes.reshape(observables, len(entering), len(leaving))
        back = entering.T @ inner @ leaving
        parted = back.reshape(observables, entering.shape[1], -1, outcomes)
        rows = parted.transpose(1, 2, 0, 3).reshape(*parted.shape[1:3], -1)
        found: Frequencies = rows @ self._weights.T
        return found


def by_final_bits(fragment: Fragment, frequencies: Frequencies) -> Tensor:
    """Compute the tensor for each value of the final bits, the first of which is lowest."""
    value = np.zeros(fragment.bits.shape[1], dtype=np.int64)
    for place, wire in enumerate(fragment.final):
        value += fragment.bits[wire] << place
    order = np.lexsort((outcomes_at_cuts(fragment), value))
    parted = frequencies[:, :, order].reshape(
        *frequencies.shape[:2], -1, 1 << len(fragment.leaving)
    )
    return by_operators(fragment, parted)


def outcomes_at_cuts(fragment: Fragment) -> NDArray[np.int64]:
    """For each bit string, the bits of the leaving wires as a number, first wire highest."""
    found = np.zeros(fragment.bits.shape[1], dtype=np.int64)
    for wire in fragment.leaving:
        found = 2 * found + fragment.bits[wire]
    return found


def by_operators(fragment: Fragment, parted: NDArray[np.float64]) -> Tensor:
    """Map (preparation, basis, observable, outcomes at the cuts) to (observable, operators)."""
    choices, _, observables, _ = parted.shape
    rows = parted.transpose(2, 0, 1, 3).reshape(observables, choices, -1)
    entering = preparation_matrix(len(fragment.entering))
    leaving = outcome_matrix(len(fragment.leaving))
    found: Tensor = entering @ rows @ leaving.T
    return found.reshape(observables, -1)


Term = dict[int, NDArray[np.float64]]
"""A product in the cost: by fragment number, its factor for each of the fragment's bit strings."""


def terms_of(graph: Graph, fragments: Sequence[Fragment], penalty: int) -> list[Term]:
    """Split the cost: one term per fragment, one per vertex and other fragment it has edges to."""
    bits = final_bits(fragments)
    inside = {number: np.zeros(each.bits.shape[1]) for number, each in enumerate(fragments)}
    for number, bit in bits.values():
        inside[number] -= bit
    across: dict[tuple[int, int], NDArray[np.float64]] = {}
    for a, b in graph.edges:
        (first, bit), (second, other) = bits[a], bits[b]
        if first == second:
            inside[first] += penalty * bit * other
        else:  # all edges of a vertex into a fragment form one factor there
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
    """For each vertex, the fragment that measures it, and its bit in that fragment's strings."""
    return {
        fragment.wires[wire].vertex: (number, fragment.bits[wire].astype(np.float64))
        for number, fragment in enumerate(fragments)
        for wire in fragment.final
    }


def _cut(fragments: Sequence[Fragment], vertex: int) -> bool:
    """Whether the vertex's wire is cut; only the few such vertices have edges across fragments."""
    return any(
        wire.vertex == vertex and wire.leaves is not None
        for fragment in fragments
        for wire in fragment.wires
    )
