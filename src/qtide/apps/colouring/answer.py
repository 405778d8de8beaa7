"""What is known about a graph's colours: bounds, a colouring, and the proof of the lower bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qtide.apps.colouring.bounds import Bounds
from qtide.apps.colouring.graph import Graph, Masks, bits, everything
from qtide.apps.colouring.independent import is_independent
from qtide.core.errors import QtideError


@dataclass(frozen=True)
class Answer:
    """A colouring, a lower bound on the number of colours, and the proof of that bound."""

    classes: Masks
    lower: int
    proof: str
    support: tuple[int, ...] = ()
    """Vertices that alone need `lower` colours, if they are the proof."""

    @property
    def upper(self) -> int:
        """Number of colours of the colouring."""
        return len(self.classes)

    @property
    def proven(self) -> bool:
        """Whether no colouring has fewer colours."""
        return self.lower == self.upper

    def better(self, classes: Masks | None) -> Answer:
        """Return the answer with these classes if they are fewer, otherwise unchanged."""
        if classes is None or len(classes) >= self.upper:
            return self
        return replace(self, classes=classes)

    def closed(self, target: int, branches: int) -> Answer:
        """Return the answer after the search has shown that `target` colours are too few."""
        words = f"no colouring with {target} colours: the search was exhaustive"
        return replace(self, lower=target + 1, proof=f"{words} ({branches:,} branches)", support=())

    def colours(self, graph: Graph) -> list[int]:
        """Check the colouring and return each vertex's colour, numbered by first appearance."""
        found = [-1] * graph.size
        for number, each in enumerate(sorted(self.classes, key=lambda mask: mask & -mask)):
            if not is_independent(graph.neighbours, each):
                raise QtideError("a colour class is not independent: this is a mistake in qtide")
            for vertex in bits(each):
                found[vertex] = number
        if sum(self.classes) != everything(graph):
            raise QtideError("not every vertex has one colour: this is a mistake in qtide")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the bounds in a form that JSON can represent."""
        return {
            "colours": self.upper,
            "lower": self.lower,
            "upper": self.upper,
            "proven": self.proven,
            "proof": self.proof,
        }


def first_answer(found: Bounds) -> Answer:
    """Return the answer that the bounds alone give."""
    clique = len(found.clique)
    proof = f"a clique of {clique}"
    if found.lower > clique:
        proof = f"{len(found.support)} vertices that need {found.lower} colours (Mycielski)"
    return Answer(found.classes, found.lower, proof, found.support)
