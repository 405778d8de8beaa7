"""The QAOA state of a graph's independent sets, its expectation value, gradient and samples.

The cost of a set of vertices is minus its size plus a penalty per edge inside it. Parameters are
flat: the angles γ of the phases, layer by layer, then the angles β of the mixers.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.graph import Graph
from qtide.apps.colouring.qaoa import kernels
from qtide.apps.colouring.qaoa.kernels import Costs, Parts
from qtide.errors import UsageError

PENALTY = 2
"""Twice what a vertex gains: a set with an edge inside is never the best."""

MOST_QUBITS = 20
"""A million amplitudes, and twice as many for the gradient."""

Angles = NDArray[np.float64]


class Ansatz:
    """QAOA for one graph, any depth, simulated on one thread."""

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
        return kernels.cost_diagonal(np.array(self.graph.neighbours, np.int64), self.penalty)

    def expectation(self, angles: Angles) -> float:
        """The mean cost of a sample."""
        return float(kernels.mean_cost(*self._state(angles), self.costs))

    def gradient(self, angles: Angles) -> tuple[float, Angles]:
        """The expectation value and its exact derivatives, by going back through the layers."""
        depth, size = len(angles) // 2, self.graph.size
        slopes = np.empty(2 * depth)
        re, im = self._state(angles)
        back_re, back_im = self.costs * re, self.costs * im
        value = float(re @ back_re + im @ back_im)
        for layer in reversed(range(depth)):
            slopes[depth + layer] = kernels.mixer_slope(re, im, back_re, back_im, size)
            for state in ((re, im), (back_re, back_im)):
                kernels.apply_mixer(*state, size, -angles[depth + layer])
            slopes[layer] = kernels.cost_slope(re, im, back_re, back_im, self.costs)
            for state in ((re, im), (back_re, back_im)):
                self._phase(*state, -angles[layer])
        return value, slopes

    def probabilities(self, angles: Angles) -> Parts:
        """How likely each bit string is."""
        re, im = self._state(angles)
        found: Parts = re * re + im * im
        return found

    def samples(self, angles: Angles, shots: int, seed: int) -> NDArray[np.int64]:
        """Bit strings as numbers, drawn from the state."""
        ladder = np.cumsum(self.probabilities(angles))
        drawn = np.random.default_rng(seed).random(shots) * ladder[-1]
        found: NDArray[np.int64] = np.searchsorted(ladder, drawn, side="right").astype(np.int64)
        return found

    def _state(self, angles: Angles) -> tuple[Parts, Parts]:
        depth, length = len(angles) // 2, len(self.costs)
        re, im = np.full(length, length**-0.5), np.zeros(length)
        for gamma, beta in zip(angles[:depth], angles[depth:], strict=True):
            self._phase(re, im, gamma)
            kernels.apply_mixer(re, im, self.graph.size, beta)
        return re, im

    def _phase(self, re: Parts, im: Parts, gamma: float) -> None:
        angles = gamma * np.arange(*self._range)
        table = np.stack((np.cos(angles), np.sin(angles)))
        kernels.apply_phase(re, im, self.costs, self._range[0], table)

    @cached_property
    def _range(self) -> tuple[int, int]:
        return int(self.costs.min()), int(self.costs.max()) + 1
