"""Bit strings of the whole graph, drawn from the frequencies of the fragments alone.

The chain rule draws fragment by fragment: the bits of the first by their own distribution, those of
the next given what was drawn so far. That needs no list of all bit strings of the graph, only those
of one fragment. Finite shots may give a distribution negative entries (quasi-probabilities); they
count as zero, and the others are scaled to the sum of one. Whatever is drawn had a positive
entry, so what follows it has a positive sum again. Exact frequencies have no negative entries, and
their samples follow the uncut circuit's distribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qtide.apps.colouring.cutting.circuit import CutCircuit
from qtide.apps.colouring.cutting.fragment import Fragment
from qtide.apps.colouring.cutting.reduction import Frequencies, by_final_bits

Rows = NDArray[np.float64]


class Sampler:
    """Draws from one cut circuit with given frequencies."""

    def __init__(self, circuit: CutCircuit, frequencies: Sequence[Frequencies]) -> None:
        self._fragments = circuit.fragments
        pairs = zip(circuit.fragments, frequencies, circuit.places, strict=True)
        self._tensors = [by_final_bits(one, found)[:, places] for one, found, places in pairs]
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
            drawn = rng.multinomial(counts, distributions((past * rest) @ tensor.T))
            before, outcomes = np.nonzero(drawn)
            counts = drawn[before, outcomes]
            words = _words(fragment)
            strings = [strings[b] | words[o] for b, o in zip(before, outcomes, strict=True)]
            past = past[before] * tensor[outcomes]
        return dict(zip(strings, counts.tolist(), strict=True))


def distributions(rows: Rows) -> Rows:
    """Each row without its negative entries, scaled to the sum of one; its own sum is positive."""
    kept = np.maximum(rows, 1e-300)  # uniform if rounding has left nothing of a row
    found: Rows = kept / kept.sum(axis=1, keepdims=True)
    return found


def _words(fragment: Fragment) -> list[int]:
    """For each value of the final bits, the bits of the whole graph's string."""
    vertices = [fragment.wires[wire].vertex for wire in fragment.final]
    words = [0]
    for vertex in vertices:
        words += [word | 1 << vertex for word in words]
    return words
