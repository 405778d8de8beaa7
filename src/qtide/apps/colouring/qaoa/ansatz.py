"""The QAOA state for a graph's independent sets: its expectation value, gradient and samples.

The cost of a set of vertices is minus its size plus a penalty per edge inside it. Parameters are
flat: the angles γ of the phases, layer by layer, then the angles β of the mixers.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.graph import Graph
from qtide.apps.compiled import compiled, compiled_inner, compiled_sums
from qtide.core.errors import UsageError

PENALTY = 2
"""Twice the gain of a vertex, so that a set with an edge inside is never the best."""

MOST_QUBITS = 20
"""Most qubits of a simulation: a million amplitudes, and twice as many for the gradient."""

Angles = NDArray[np.float64]


class Ansatz:
    """QAOA for one graph, at any depth, simulated on one thread."""

    def __init__(self, graph: Graph, penalty: int = PENALTY) -> None:
        if not 1 <= graph.size <= MOST_QUBITS:
            raise UsageError(
                f"QAOA is simulated for 1 to {MOST_QUBITS} vertices, not {graph.size}; "
                "cut the circuit, or choose another step"
            )
        self.graph = graph
        self.penalty = penalty

    @cached_property
    def costs(self) -> Costs:
        """The cost of each bit string."""
        return cost_diagonal(np.array(self.graph.neighbours, np.int64), self.penalty)

    def expectation(self, angles: Angles) -> float:
        """The mean cost of a sample."""
        return float(mean_cost(*self._state(angles), self.costs))

    def gradient(self, angles: Angles) -> tuple[float, Angles]:
        """Return the expectation value and its exact derivatives, by a backward pass."""
        depth, size = len(angles) // 2, self.graph.size
        slopes = np.empty(2 * depth)
        re, im = self._state(angles)
        back_re, back_im = self.costs * re, self.costs * im
        value = float(mean_cost(re, im, self.costs))
        for layer in reversed(range(depth)):
            slopes[depth + layer] = mixer_slope(re, im, back_re, back_im, size)
            for state in ((re, im), (back_re, back_im)):
                apply_mixer(*state, size, -angles[depth + layer])
            slopes[layer] = cost_slope(re, im, back_re, back_im, self.costs)
            for state in ((re, im), (back_re, back_im)):
                self._phase(*state, -angles[layer])
        return value, slopes

    def probabilities(self, angles: Angles) -> Parts:
        """Probability of each bit string."""
        re, im = self._state(angles)
        found: Parts = re * re + im * im
        return found

    def samples(self, angles: Angles, shots: int, seed: int) -> NDArray[np.int64]:
        """Draw bit strings, as numbers, from the state."""
        ladder = np.cumsum(self.probabilities(angles))
        drawn = np.random.default_rng(seed).random(shots) * ladder[-1]
        found: NDArray[np.int64] = np.searchsorted(ladder, drawn, side="right").astype(np.int64)
        return found

    def _state(self, angles: Angles) -> tuple[Parts, Parts]:
        depth, length = len(angles) // 2, len(self.costs)
        re, im = np.full(length, length**-0.5), np.zeros(length)
        for gamma, beta in zip(angles[:depth], angles[depth:], strict=True):
            self._phase(re, im, gamma)
            apply_mixer(re, im, self.graph.size, beta)
        return re, im

    def _phase(self, re: Parts, im: Parts, gamma: float) -> None:
        angles = gamma * np.arange(*self._range)
        table = np.stack((np.cos(angles), np.sin(angles)))
        apply_phase(re, im, self.costs, self._range[0], table)

    @cached_property
    def _range(self) -> tuple[int, int]:
        return int(self.costs.min()), int(self.costs.max()) + 1


Parts = NDArray[np.float64]
Costs = NDArray[np.int32]
BLOCK = 10
"""The lowest qubits are mixed block by block: 2^10 amplitudes fit the first-level cache."""


@compiled
def cost_diagonal(neighbours: NDArray[np.int64], penalty: int) -> Costs:
    """Cost of every set of vertices: -1 per vertex, plus the penalty per edge inside the set."""
    costs = np.zeros(1 << len(neighbours), dtype=np.int32)
    for vertex in range(len(neighbours)):
        size = 1 << vertex
        for subset in range(size):
            inside, edges = subset & neighbours[vertex], 0
            while inside:
                inside &= inside - 1
                edges += 1
            costs[size + subset] = costs[subset] - 1 + penalty * edges
    return costs


@compiled_sums
def apply_phase(re: Parts, im: Parts, costs: Costs, lowest: int, table: Parts) -> None:
    """Multiply each amplitude by its cost's phase; `table` has a row of cosines, one of sines."""
    for x in range(len(re)):
        cosine, sine = table[0, costs[x] - lowest], table[1, costs[x] - lowest]
        a, b = re[x], im[x]
        re[x] = cosine * a + sine * b
        im[x] = cosine * b - sine * a


@compiled_inner
def mix_one(re: Parts, im: Parts, half: int, c: float, s: float) -> None:
    """Apply exp(-iβX) to the qubit of stride `half`, in place."""
    for base in range(0, len(re), 2 * half):
        for j in range(base, base + half):
            k = j + half
            a, b, x, y = re[j], im[j], re[k], im[k]
            re[j], im[j] = c * a + s * y, c * b - s * x
            re[k], im[k] = c * x + s * b, c * y - s * a


@compiled_inner
def mix_two(re: Parts, im: Parts, half: int, c: float, s: float) -> None:
    """Do the same for two adjacent qubits at once: half as many passes over memory."""
    cc, ss, cs = c * c, s * s, c * s
    for base in range(0, len(re), 4 * half):
        for j in range(base, base + half):
            k, m, n = j + half, j + 2 * half, j + 3 * half
            a, b, d, e = re[j], re[k], re[m], re[n]
            u, v, w, x = im[j], im[k], im[m], im[n]
            re[j], im[j] = cc * a - ss * e + cs * (v + w), cc * u - ss * x - cs * (b + d)
            re[k], im[k] = cc * b - ss * d + cs * (u + x), cc * v - ss * w - cs * (a + e)
            re[m], im[m] = cc * d - ss * b + cs * (u + x), cc * w - ss * v - cs * (a + e)
            re[n], im[n] = cc * e - ss * a + cs * (v + w), cc * x - ss * u - cs * (b + d)


@compiled_inner
def mix_from(re: Parts, im: Parts, first: int, last: int, c: float, s: float) -> None:
    """Do the same for the qubits `first` … `last` - 1."""
    for qubit in range(first, last - 1, 2):
        mix_two(re, im, 1 << qubit, c, s)
    if (last - first) % 2:
        mix_one(re, im, 1 << (last - 1), c, s)


@compiled_sums
def apply_mixer(re: Parts, im: Parts, qubits: int, beta: float) -> None:
    """Apply exp(-iβX) to every qubit, in place."""
    c, s, low = np.cos(beta), np.sin(beta), min(qubits, BLOCK)
    size = 1 << low
    for start in range(0, len(re), size):
        mix_from(re[start : start + size], im[start : start + size], 0, low, c, s)
    mix_from(re, im, low, qubits, c, s)


@compiled_sums
def mean_cost(re: Parts, im: Parts, costs: Costs) -> float:
    """The expectation value of the cost."""
    total = 0.0
    for x in range(len(re)):
        total += (re[x] * re[x] + im[x] * im[x]) * costs[x]
    return total


@compiled_sums
def cost_slope(re: Parts, im: Parts, back_re: Parts, back_im: Parts, costs: Costs) -> float:
    """2 Im <back|C|state>, the derivative with respect to the angle of a phase."""
    total = 0.0
    for x in range(len(re)):
        total += costs[x] * (back_re[x] * im[x] - back_im[x] * re[x])
    return 2 * total


@compiled_inner
def slope_one(re: Parts, im: Parts, back_re: Parts, back_im: Parts, half: int) -> float:
    """Im <back|X|state> for the qubit of stride `half`."""
    total = 0.0
    for base in range(0, len(re), 2 * half):
        for j in range(base, base + half):
            k = j + half
            total += back_re[j] * im[k] - back_im[j] * re[k]
            total += back_re[k] * im[j] - back_im[k] * re[j]
    return total


@compiled_inner
def slope_two(re: Parts, im: Parts, back_re: Parts, back_im: Parts, half: int) -> float:
    """The same for two adjacent qubits at once: each flips outer amplitudes to inner ones."""
    total = 0.0
    for base in range(0, len(re), 4 * half):
        for j in range(base, base + half):
            k, m, n = j + half, j + 2 * half, j + 3 * half
            total += (back_re[j] + back_re[n]) * (im[k] + im[m])
            total -= (back_im[j] + back_im[n]) * (re[k] + re[m])
            total += (back_re[k] + back_re[m]) * (im[j] + im[n])
            total -= (back_im[k] + back_im[m]) * (re[j] + re[n])
    return total


@compiled_inner
def slope_from(
    re: Parts, im: Parts, back_re: Parts, back_im: Parts, first: int, last: int
) -> float:
    """The same for the qubits `first` … `last` - 1."""
    total = 0.0
    for qubit in range(first, last - 1, 2):
        total += slope_two(re, im, back_re, back_im, 1 << qubit)
    if (last - first) % 2:
        total += slope_one(re, im, back_re, back_im, 1 << (last - 1))
    return total


@compiled_sums
def mixer_slope(re: Parts, im: Parts, back_re: Parts, back_im: Parts, qubits: int) -> float:
    """2 Im <back|ΣX|state>, the derivative with respect to the angle of a mixer."""
    low, total = min(qubits, BLOCK), 0.0
    for at in range(0, len(re), 1 << low):
        to = at + (1 << low)
        total += slope_from(re[at:to], im[at:to], back_re[at:to], back_im[at:to], 0, low)
    return 2 * (total + slope_from(re, im, back_re, back_im, low, qubits))
