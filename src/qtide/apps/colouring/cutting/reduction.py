"""From the frequencies of a fragment to its tensor over the Pauli operators at its cuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.paulis import outcome_matrix, preparation_matrix

Frequencies = NDArray[np.float64]
"""Of a fragment: by preparation, by basis, by bit string; exact probabilities, or counted shots."""

Tensor = NDArray[np.float64]
"""By observable (or by final bits), then by the Pauli operators at all cuts of the fragment."""


class Reduction:
    """The linear map from frequencies to the tensor of some observables of the final bits."""

    def __init__(self, fragment: Fragment, observables: NDArray[np.float64]) -> None:
        self._fragment = fragment
        outcomes = 1 << len(fragment.leaving)
        self._shape = (len(observables), outcomes)
        chosen = np.eye(outcomes)[outcomes_at_cuts(fragment)]
        self._weights = (observables.T[:, :, None] * chosen[:, None, :]).reshape(len(chosen), -1)

    def tensor(self, frequencies: Frequencies) -> Tensor:
        """The mean of each observable, by operators."""
        found = (frequencies @ self._weights).reshape(*frequencies.shape[:2], *self._shape)
        return by_operators(self._fragment, found)

    def slopes(self, tensor_slopes: Tensor) -> Frequencies:
        """The derivative by each frequency, given that by each entry of the tensor."""
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
    """The tensor for each value of the final bits, the first of them lowest."""
    value = np.zeros(fragment.bits.shape[1], dtype=np.int64)
    for place, wire in enumerate(fragment.final):
        value += fragment.bits[wire] << place
    order = np.lexsort((outcomes_at_cuts(fragment), value))
    parted = frequencies[:, :, order].reshape(
        *frequencies.shape[:2], -1, 1 << len(fragment.leaving)
    )
    return by_operators(fragment, parted)


def outcomes_at_cuts(fragment: Fragment) -> NDArray[np.int64]:
    """For each bit string, the bits of the leaving wires as a number, the first highest."""
    found = np.zeros(fragment.bits.shape[1], dtype=np.int64)
    for wire in fragment.leaving:
        found = 2 * found + fragment.bits[wire]
    return found


def by_operators(fragment: Fragment, parted: NDArray[np.float64]) -> Tensor:
    """From preparation, basis, observable and outcomes at the cuts to observable and operators."""
    choices, _, observables, _ = parted.shape
    rows = parted.transpose(2, 0, 1, 3).reshape(observables, choices, -1)
    entering = preparation_matrix(len(fragment.entering))
    leaving = outcome_matrix(len(fragment.leaving))
    found: Tensor = entering @ rows @ leaving.T
    return found.reshape(observables, -1)
