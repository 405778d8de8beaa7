"""Compiled kernels of fragments: all circuits of one fragment are evaluated together.

Fragments are small, so that one call with little around it matters more than vector units.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qtide.apps.clustering.compiled import compiled, compiled_inner

Amplitudes = NDArray[np.complex128]
Places = NDArray[np.int64]


@compiled_inner
def mix(state: Amplitudes, mask: int, beta: float) -> None:
    """exp(-iβX) on the qubits of the mask."""
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
    """Let a measurement of the qubit of stride `half` be one in Z (0), X (1) or Y (2)."""
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
    """The final state for each bit string at the entering wires, the first of them highest."""
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
    """The probabilities of all bit strings: by preparation, by basis, by bit string."""
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
