"""The identity on a wire, written as measurements and preparations: what a cut is made of.

A state is half the sum over the Pauli operators P of its expectation value of P, times P. The
expectation values come from three bases (that of the identity from all of them alike), and the
operators are differences of prepared states.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PREPARATIONS = ("0", "1", "+", "i")
BASES = ("Z", "X", "Y")

AMPLITUDES = np.array([[1, 0], [0, 1], [0.5**0.5, 0.5**0.5], [0.5**0.5, 1j * 0.5**0.5]])
"""Of each preparation, in the order of their names."""

FROM_PREPARATIONS = np.array([[1, 1, 0, 0], [-1, -1, 2, 0], [-1, -1, 0, 2], [1, -1, 0, 0]]) / 2
"""The rows give I, X, Y and Z by the prepared states; with them goes the half of each cut."""

FROM_OUTCOMES = np.zeros((4, 3, 2))
"""The expectation values of I, X, Y and Z by basis and outcome."""
FROM_OUTCOMES[0] = 1 / 3
FROM_OUTCOMES[1, 1] = FROM_OUTCOMES[2, 2] = FROM_OUTCOMES[3, 0] = (1, -1)

SAMPLING_OVERHEAD = 16
"""How many times as many shots a cut wire needs for the same error: at worst, the square of the
sum of the weights of its eight products of measurement and preparation, each a half."""


def preparation_matrix(wires: int) -> NDArray[np.float64]:
    """Pauli operators on several wires (rows) by their preparations; the first wire is slowest."""
    matrix: NDArray[np.float64] = np.ones((1, 1))
    for _ in range(wires):
        matrix = np.kron(matrix, FROM_PREPARATIONS).astype(np.float64)
    return matrix


def outcome_matrix(wires: int) -> NDArray[np.float64]:
    """Expectation values (rows) by the bases of all wires, then the outcomes of all of them."""
    matrix = np.ones(())
    for _ in range(wires):
        matrix = np.multiply.outer(matrix, FROM_OUTCOMES)
    axes = [3 * n + kind for kind in range(3) for n in range(wires)]
    return matrix.transpose(axes).reshape(4**wires, 6**wires)
