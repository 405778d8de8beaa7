"""From the frequencies of a fragment to its tensor over the Pauli operators at its cuts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.paulis import outcome_matrix, preparation_matrix

Frequencies = NDArray[np.float64]
"""Of a fragment: by preparation, by basis, by bit string; exact probabilities, or counted shots."""

Tensor = NDArray[np.float64]
"""By observable, then by the Pauli operators at the entering and the leaving cuts."""


class Reduction:
    """The linear map from frequencies to the tensor of some observables of the final bits."""

    def __init__(self, fragment: Fragment, observables: NDArray[np.float64]) -> None:
        self._entering = preparation_matrix(len(fragment.entering))
        self._leaving = outcome_matrix(len(fragment.leaving))
        outcomes = 1 << len(fragment.leaving)
        at_cuts = np.zeros(observables.shape[1], dtype=np.int64)
        for wire in fragment.leaving:
            at_cuts = 2 * at_cuts + fragment.bits[wire]
        self._shape = (len(observables), outcomes)
        chosen = np.eye(outcomes)[at_cuts]  # which bit strings have which outcomes at the cuts
        self._weights = (observables.T[:, :, None] * chosen[:, None, :]).reshape(len(at_cuts), -1)

    def tensor(self, frequencies: Frequencies) -> Tensor:
        """The tensor, with the operators of all cuts as one index."""
        found = (frequencies @ self._weights).reshape(*frequencies.shape[:2], *self._shape)
        by_observable = found.transpose(2, 0, 1, 3).reshape(
            self._shape[0], frequencies.shape[0], -1
        )
        return (self._entering @ by_observable @ self._leaving.T).reshape(self._shape[0], -1)

    def slopes(self, tensor_slopes: Tensor) -> Frequencies:
        """The derivative by each frequency, given that by each entry of the tensor."""
        inner = tensor_slopes.reshape(self._shape[0], len(self._entering), len(self._leaving))
        back = self._entering.T @ inner @ self._leaving
        parted = back.reshape(self._shape[0], self._entering.shape[1], -1, self._shape[1])
        rows = parted.transpose(1, 2, 0, 3).reshape(*parted.shape[1:3], -1)
        found: Frequencies = rows @ self._weights.T
        return found
