"""Bit strings of the whole graph, drawn from the frequencies of the fragments alone.

The chain rule draws fragment by fragment: the bits of the first by their own distribution, those of
the next given what was drawn so far. That needs no list of all bit strings of the graph, only those
of one fragment. The distributions sum to one, but made of finite shots they may have negative
entries (quasi-probabilities). Each is then replaced by the nearest true distribution (in Euclid's
sense): everything is lowered by the same amount, and what falls below zero is zero. Exact
frequencies have no negative entries, and their samples follow the uncut circuit's distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.circuit import CutCircuit
from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.reduction import Frequencies, Reduction, Tensor

Rows = NDArray[np.float64]


class Sampler:
    """Draws from one cut circuit with given frequencies."""

    def __init__(self, circuit: CutCircuit, frequencies: Sequence[Frequencies]) -> None:
        self._fragments = circuit.fragments
        pairs = zip(circuit.fragments, frequencies, circuit.places, strict=True)
        self._tensors = [_by_final_bits(*each) for each in pairs]
        rest = np.ones(4**circuit.cuts)
        self._rests = [rest]  # for each fragment, what all later ones together contribute
        for tensor in self._tensors[:0:-1]:
            rest = rest * tensor.sum(axis=0)
            self._rests.insert(0, rest)

    def draw(self, count: int, rng: np.random.Generator) -> dict[int, int]:
        """How often each bit string was drawn, of `count` samples; bit v is vertex v."""
        strings: list[int] = [0]
        counts = np.array([count])
        past = np.ones((1, len(self._rests[0])))
        for fragment, tensor, rest in zip(self._fragments, self._tensors, self._rests, strict=True):
            drawn = rng.multinomial(counts, nearest_distributions((past * rest) @ tensor.T))
            before, outcomes = np.nonzero(drawn)
            counts = drawn[before, outcomes]
            words = _words(fragment)
            strings = [strings[b] | words[o] for b, o in zip(before, outcomes, strict=True)]
            past = past[before] * tensor[outcomes]
        return dict(zip(strings, counts.tolist(), strict=True))


def nearest_distributions(rows: Rows) -> Rows:
    """For each row the nearest vector of probabilities, after it was scaled to the sum of one."""
    sums = rows.sum(axis=1, keepdims=True)
    scaled = rows / np.where(np.abs(sums) > 1e-300, sums, 1)
    ordered = -np.sort(-scaled, axis=1)
    places = np.arange(1, rows.shape[1] + 1)
    lowered = (np.cumsum(ordered, axis=1) - 1) / places
    kept = (ordered > lowered).sum(axis=1, keepdims=True)
    found = np.maximum(scaled - np.take_along_axis(lowered, kept - 1, axis=1), 0)
    normal: Rows = found / found.sum(axis=1, keepdims=True)
    return normal


def _by_final_bits(
    fragment: Fragment, frequencies: Frequencies, places: NDArray[np.int64]
) -> Tensor:
    """The tensor by the fragment's final bits, the first lowest, and the operators at all cuts."""
    number = np.zeros(fragment.bits.shape[1], dtype=np.int64)
    for place, wire in enumerate(fragment.final):
        number += fragment.bits[wire] << place
    indicators = np.eye(1 << len(fragment.final))[:, number]
    found: Tensor = Reduction(fragment, indicators).tensor(frequencies)[:, places]
    return found


def _words(fragment: Fragment) -> list[int]:
    """For each value of the final bits, the bits of the whole graph's string."""
    vertices = [fragment.wires[wire].vertex for wire in fragment.final]
    words = [0]
    for vertex in vertices:
        words += [word | 1 << vertex for word in words]
    return words
