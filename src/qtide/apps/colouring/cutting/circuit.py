"""A cut circuit: its fragments evaluated, its expectation value and samples put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting import kernels
from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.kernels import Places
from qtide.apps.colouring.cutting.observables import Term, terms_of
from qtide.apps.colouring.cutting.partition import Partition
from qtide.apps.colouring.cutting.paulis import AMPLITUDES
from qtide.apps.colouring.cutting.reduction import Frequencies, Reduction, Tensor
from qtide.apps.colouring.qaoa.ansatz import PENALTY, Angles

Shape = tuple[NDArray[np.int32], Places, Places, Places]
"""Costs and mixed wires layer by layer, entering wires, leaving wires."""


@dataclass(frozen=True)
class Estimate:
    """An expectation value and its standard error."""

    value: float
    error: float


class CutCircuit:
    """QAOA of a partitioned graph."""

    def __init__(self, partition: Partition, depth: int, penalty: int = PENALTY) -> None:
        self.graph = partition.graph
        self.penalty = penalty
        self.fragments = partition.fragments(depth)
        self.cuts = sum(len(fragment.leaving) for fragment in self.fragments)

    def probabilities(self, angles: Angles) -> list[Frequencies]:
        """Exact probabilities of all circuits, fragment by fragment."""
        return [kernels.circuit_probabilities(*shape, angles, AMPLITUDES) for shape in self._shapes]

    def sampled(self, angles: Angles, shots: int, rng: np.random.Generator) -> list[Frequencies]:
        """The frequencies in that many shots of each circuit."""
        exact = self.probabilities(angles)
        return [
            rng.multinomial(shots, each / each.sum(-1, keepdims=True)) / shots for each in exact
        ]

    def expectation(self, frequencies: Sequence[Frequencies]) -> float:
        """The mean cost, by the frequencies of all circuits."""
        return float(self._products(self._tensors(frequencies)).sum())

    def estimate(self, frequencies: Sequence[Frequencies], shots: int) -> Estimate:
        """The same from shots, with its standard error (to first order)."""
        tensors = self._tensors(frequencies)
        variance = 0.0
        for number, (reduction, found) in enumerate(
            zip(self._reductions, frequencies, strict=True)
        ):
            slopes = reduction.slopes(self._tensor_slopes(tensors, number))
            mean = (slopes * found).sum(-1)
            variance += float(((slopes**2 * found).sum(-1) - mean**2).sum()) / shots
        return Estimate(float(self._products(tensors).sum()), max(variance, 0.0) ** 0.5)

    @cached_property
    def places(self) -> list[NDArray[np.int64]]:
        """For each fragment, where the operators of all cuts together are found in its tensor."""
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
        """For each term and all operators at the cuts, the product over (other) fragments."""
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
        """The first observable of each fragment is 1, the others are those of the terms."""
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
        """For each term, which observable it takes of each fragment."""
        rows = np.zeros((len(self._terms), len(self.fragments)), dtype=np.int64)
        for number in range(len(self.fragments)):
            members = [row for row, term in enumerate(self._terms) if number in term]
            rows[members, number] = np.arange(1, len(members) + 1)
        return rows

    @cached_property
    def _shapes(self) -> list[Shape]:
        return [_shape(fragment, self.penalty) for fragment in self.fragments]


def _shape(fragment: Fragment, penalty: int) -> Shape:
    """What the kernel needs to know of a fragment."""
    mixed = [sum(1 << wire for wire in layer.mixed) for layer in fragment.layers]
    return (
        fragment.costs(penalty),
        np.array(mixed, dtype=np.int64),
        np.array(fragment.entering, dtype=np.int64),
        np.array(fragment.leaving, dtype=np.int64),
    )
