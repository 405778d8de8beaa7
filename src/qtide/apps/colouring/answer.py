"""What is known about a graph's colours: bounds, the colouring, and why no fewer will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qtide.apps.colouring.bounds import Bounds
from qtide.apps.colouring.graph import Graph, Masks, bits, everything
from qtide.apps.colouring.independent import is_independent
from qtide.core.errors import QtideError


@dataclass(frozen=True)
class Answer:
    """A colouring, the number of colours that are needed at least, and what proves that."""

    classes: Masks
    lower: int
    proof: str
    support: tuple[int, ...] = ()
    """Vertices that need so many colours by themselves, if that is the proof."""

    @property
    def upper(self) -> int:
        """The colours of the colouring."""
        return len(self.classes)

    @property
    def proven(self) -> bool:
        """Whether no colouring has fewer."""
        return self.lower == self.upper

    def better(self, classes: Masks | None) -> Answer:
        """The same with other classes, if these are fewer."""
        if classes is None or len(classes) >= self.upper:
            return self
        return replace(self, classes=classes)

    def closed(self, target: int, branches: int) -> Answer:
        """The answer once the search has shown that `target` colours are too few."""
        words = f"no colouring with {target} colours: the search was exhaustive"
        return replace(self, lower=target + 1, proof=f"{words} ({branches:,} branches)", support=())

    def colours(self, graph: Graph) -> list[int]:
        """The colour of each vertex; colours are numbered as they first appear. Checked."""
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
        """The bounds for people and scripts."""
        return {
            "colours": self.upper,
            "lower": self.lower,
            "upper": self.upper,
            "proven": self.proven,
            "proof": self.proof,
        }


def first_answer(found: Bounds) -> Answer:
    """What the bounds alone say."""
    clique = len(found.clique)
    proof = f"a clique of {clique}"
    if found.lower > clique:
        proof = f"{len(found.support)} vertices that need {found.lower} colours (Mycielski)"
    return Answer(found.classes, found.lower, proof, found.support)
