"""Nodes that fail: at set times, or at random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated

from annotated_types import Ge, Gt

from qtide.models.strict import STRICT


@dataclass(frozen=True)
class Loss:
    """At `at` seconds the node dies; it is back after `back` seconds, or never.

    With `answers`, what runs on it goes on all the same and answers too late, as a node does
    that was only cut off.
    """

    at: Annotated[float, Ge(0)]
    node: str
    back: float | None = None
    answers: bool = False

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Failures:
    """Each node fails at random: exponential times between failures, and until it is back."""

    every: Annotated[float, Gt(0)]
    """The mean seconds from one failure of a node to its next."""
    back: Annotated[float, Gt(0)] = 3600.0
    """The mean seconds until it is back."""
    seed: int = 0

    __pydantic_config__ = STRICT

    def losses(self, nodes: Sequence[str]) -> Iterator[Loss]:
        """The failures of all nodes, without end: those of one that is down do not count."""
        random, at = Random(self.seed), 0.0
        while True:
            at += random.expovariate(len(nodes) / self.every)
            yield Loss(at, random.choice(nodes), random.expovariate(1 / self.back))
