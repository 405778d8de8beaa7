"""A cut QAOA circuit: its expectation value and samples, computed from its fragments.

Compiled kernels evaluate all circuits of a fragment in one call. Fragments are small, so a low
overhead per call matters more than vector units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.cut_plan import GraphPartition
from qtide.apps.colouring.cutting.fragment import (
    AMPLITUDES,
    Fragment,
    Frequencies,
    Reduction,
    Tensor,
    Term,
    by_final_bits,
    terms_of,
)
from qtide.apps.colouring.qaoa.ansatz import PENALTY, Angles
from qtide.apps.compiled import compiled, compiled_inner


@dataclass(frozen=True)
class CutEstimate:
    """An expectation value and its standard error."""

    value: float
    error: float


class CutCircuit:
    """The QAOA circuit of a partitioned graph."""

    def __init__(self, partition: GraphPartition, depth: int, penalty: int = PENALTY) -> None:
        self.graph = partition.graph
        self.penalty = penalty
        self.fragments = partition.fragments(depth)
        self.cuts = sum(len(fragment.leaving) for fragment in self.fragments)

    def probabilities(self, angles: Angles) -> list[Frequencies]:
        """Exact probabilities of all circuits, fragment by fragment."""
        return [circuit_probabilities(*shape, angles, AMPLITUDES) for shape in self._shapes]

    def sampled(self, angles: Angles, shots: int, rng: np.random.Generator) -> list[Frequencies]:
        """Draw that many shots of each circuit and return the frequencies."""
        exact = self.probabilities(angles)
        return [
            rng.multinomial(shots, each / each.sum(-1, keepdims=True)) / shots for each in exact
        ]

    def expectation(self, frequencies: Sequence[Frequencies]) -> float:
        """Compute the mean cost from the frequencies of all circuits."""
        return float(self._products(self._tensors(frequencies)).sum())

    def estimate(self, frequencies: Sequence[Frequencies], shots: int) -> CutEstimate:
        """Estimate the mean cost from shots, with its standard error (to first order)."""
        tensors = self._tensors(frequencies)
        variance = 0.0
        for number, (reduction, found) in enumerate(
            zip(self._reductions, frequencies, strict=True)
        ):
            slopes = reduction.slopes(self._tensor_slopes(tensors, number))
            mean = (slopes * found).sum(-1)
            variance += float(((slopes**2 * found).sum(-1) - mean**2).sum()) / shots
        return CutEstimate(float(self._products(tensors).sum()), max(variance, 0.0) ** 0.5)

    @cached_property
    def places(self) -> list[NDArray[np.int64]]:
        """For each fragment, the tensor column for each combination of operators at all cuts."""
        operators = np.arange(4**self.cuts)
        found = []
        for fragment in self.fragments:
            place = np.zeros_like(operators)
            for cut in fragment.cuts:
                place = 4 * place + (operators >> 2 * cut & 3)
            found.append(place)
        return found

    def _tensors(self, frequencies: Sequence[Frequencies]) -> list[Tensor]:
        pairs = zip(self._reductions, frequencies, strict=True)
        return [reduction.tensor(each) for reduction, each in pairs]

    def _products(self, tensors: Sequence[Tensor], without: int = -1) -> NDArray[np.float64]:
        """Multiply the tensors of all fragments but `without`, by term and operators at cuts."""
        product = np.ones((len(self._rows), 4**self.cuts))
        for number, (tensor, place) in enumerate(zip(tensors, self.places, strict=True)):
            if number != without:
                product *= tensor[self._rows[:, number]][:, place]
        return product

    def _tensor_slopes(self, tensors: Sequence[Tensor], number: int) -> Tensor:
        slopes = np.zeros_like(tensors[number])
        others = self._products(tensors, without=number)
        np.add.at(slopes, (self._rows[:, number, None], self.places[number][None, :]), others)
        return slopes

    @cached_property
    def _terms(self) -> list[Term]:
        return terms_of(self.graph, self.fragments, self.penalty)

    @cached_property
    def _reductions(self) -> list[Reduction]:
        """One per fragment: its first observable is 1, the others are the factors of the terms."""
        return [
            Reduction(fragment, np.stack([np.ones(fragment.bits.shape[1]), *self._factors[number]]))
            for number, fragment in enumerate(self.fragments)
        ]

    @cached_property
    def _factors(self) -> list[list[NDArray[np.float64]]]:
        numbers = range(len(self.fragments))
        return [[term[number] for term in self._terms if number in term] for number in numbers]

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """For each term, the index of the observable that it uses in each fragment."""
        rows = np.zeros((len(self._terms), len(self.fragments)), dtype=np.int64)
        for number in range(len(self.fragments)):
            members = [row for row, term in enumerate(self._terms) if number in term]
            rows[members, number] = np.arange(1, len(members) + 1)
        return rows

    @cached_property
    def _shapes(self) -> list[Shape]:
        return [_shape(fragment, self.penalty) for fragment in self.fragments]


Places = NDArray[np.int64]
Shape = tuple[NDArray[np.int32], Places, Places, Places]
"""Costs by layer, mixed wires by layer, entering wires, leaving wires."""


def _shape(fragment: Fragment, penalty: int) -> Shape:
    """Collect what the kernel needs to know about a fragment."""
    mixed = [sum(1 << wire for wire in layer.mixed) for layer in fragment.layers]
    return (
        fragment.costs(penalty),
        np.array(mixed, dtype=np.int64),
        np.array(fragment.entering, dtype=np.int64),
        np.array(fragment.leaving, dtype=np.int64),
    )


class Sampler:
    """Draws samples of one cut circuit from given frequencies."""

    def __init__(self, circuit: CutCircuit, frequencies: Sequence[Frequencies]) -> None:
        self._fragments = circuit.fragments
        pairs = zip(circuit.fragments, frequencies, circuit.places, strict=True)
        self._tensors = [by_final_bits(one, found)[:, places] for one, found, places in pairs]
        rest = np.ones(4**circuit.cuts)
        self._rests = [rest]  # for each fragment, the combined contribution of all later ones
        for tensor in self._tensors[:0:-1]:
            rest = rest * tensor.sum(axis=0)
            self._rests.insert(0, rest)

    def draw(self, count: int, rng: np.random.Generator) -> dict[int, int]:
        """Draw `count` samples; return the count of each bit string, in which bit v is vertex v."""
        strings: list[int] = [0]
        counts = np.array([count])
        past = np.ones((1, len(self._rests[0])))
        for fragment, tensor, rest in zip(self._fragments, self._tensors, self._rests, strict=True):
            drawn = rng.multinomial(counts, distributions((past * rest) @ tensor.T))
            before, outcomes = np.nonzero(drawn)
            counts = drawn[before, outcomes]
            words = _words(fragment)
            strings = [strings[b] | words[o] for b, o in zip(before, outcomes, strict=True)]
            past = past[before] * tensor[outcomes]
        return dict(zip(strings, counts.tolist(), strict=True))


def distributions(rows: Rows) -> Rows:
    """Clip negative entries and scale each row to sum to one; row sums are positive."""
    kept = np.maximum(rows, 1e-300)  # uniform if rounding leaves nothing of a row
    found: Rows = kept / kept.sum(axis=1, keepdims=True)
    return found


def _words(fragment: Fragment) -> list[int]:
    """Map each value of the final bits to its bits in the whole graph's string."""
    vertices = [fragment.wires[wire].vertex for wire in fragment.final]
    words = [0]
    for vertex in vertices:
        words += [word | 1 << vertex for word in words]
    return words


Amplitudes = NDArray[np.complex128]


@compiled_inner
def mix(state: Amplitudes, mask: int, beta: float) -> None:
    """Apply exp(-iβX) to the qubits of the mask, in place."""
    c, s = np.cos(beta), -1j * np.sin(beta)
    half = 1
    while half < len(state):
        if mask & half:
            for base in range(0, len(state), 2 * half):
                for j in range(base, base + half):
                    a, b = state[j], state[j + half]
                    state[j], state[j + half] = c * a + s * b, c * b + s * a
        half *= 2


@compiled_inner
def turn(state: Amplitudes, half: int, basis: int) -> None:
    """Rotate the qubit of stride `half` for a measurement in basis Z (0), X (1) or Y (2)."""
    if basis == 0:
        return
    root, factor = 0.5**0.5, 1.0 if basis == 1 else -1j
    for base in range(0, len(state), 2 * half):
        for j in range(base, base + half):
            a, b = root * state[j], root * factor * state[j + half]
            state[j], state[j + half] = a + b, a - b


@compiled_inner
def evolved(
    costs: NDArray[np.int32], mixed: Places, entering: Places, angles: NDArray[np.float64]
) -> Amplitudes:
    """Return the final state for each bit string at the entering wires, first wire highest."""
    depth, size = costs.shape
    count = len(entering)
    states = np.zeros((1 << count, size), dtype=np.complex128)
    start = (size >> count) ** -0.5
    for x in range(size):
        row = 0
        for wire in entering:
            row = 2 * row + (x >> wire & 1)
        states[row, x] = start
    for layer in range(depth):
        phases = np.exp(-1j * angles[layer] * costs[layer])
        for row in range(1 << count):
            states[row] *= phases
            mix(states[row], mixed[layer], angles[depth + layer])
    return states


@compiled
def circuit_probabilities(
    costs: NDArray[np.int32],
    mixed: Places,
    entering: Places,
    leaving: Places,
    angles: NDArray[np.float64],
    preparations: Amplitudes,
) -> NDArray[np.float64]:
    """Return the probabilities of all bit strings, indexed by preparation, basis, bit string."""
    states = evolved(costs, mixed, entering, angles)
    kinds, size = len(preparations), costs.shape[1]
    answer = np.empty((kinds ** len(entering), 3 ** len(leaving), size))
    prepared, turned = np.empty(size, dtype=np.complex128), np.empty(size, dtype=np.complex128)
    for choice in range(answer.shape[0]):
        prepared[:] = 0
        for row in range(len(states)):
            weight, left = 1 + 0j, choice
            for place in range(len(entering)):  # the last wire's choice is the lowest digit
                weight *= preparations[left % kinds, row >> place & 1]
                left //= kinds
            prepared += weight * states[row]
        for bases in range(answer.shape[1]):
            turned[:] = prepared
            left = bases
            for place in range(len(leaving) - 1, -1, -1):
                turn(turned, 1 << leaving[place], left % 3)
                left //= 3
            for x in range(size):
                answer[choice, bases, x] = turned[x].real ** 2 + turned[x].imag ** 2
    return answer


Rows = NDArray[np.float64]
