"""When nodes, devices and the service are down: failures, and windows of maintenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor
from random import Random
from typing import Annotated

from annotated_types import Ge, Gt

Seconds = Annotated[float, Ge(0)]
STRICT = {"extra": "forbid", "allow_inf_nan": False}
"""Pydantic configuration of every part of a site."""


@dataclass(frozen=True)
class Loss:
    """Loss of a node at second `at`; it recovers after `back` seconds, or never if None.

    With `answers`, its task continues and answers too late, as on a node that was only cut off.
    """

    at: Seconds
    node: str
    back: float | None = None
    answers: bool = False

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Failures:
    """Random node failures, with exponential times between failures and until recovery."""

    every: Annotated[float, Gt(0)]
    """Mean seconds from one failure of a node to its next."""
    back: Annotated[float, Gt(0)] = 3600.0
    """Mean seconds until a failed node recovers."""
    seed: int = 0

    __pydantic_config__ = STRICT

    def losses(self, nodes: Sequence[str]) -> Iterator[Loss]:
        """Endless stream of node failures; those of a node that is already down have no effect."""
        random, at = Random(self.seed), 0.0
        while True:
            at += random.expovariate(len(nodes) / self.every)
            yield Loss(at, random.choice(nodes), random.expovariate(1 / self.back))

    def outages(self, number: int) -> Outages:
        """The outages of one device, or of the service; each number has its own."""
        return Outages(self, number)


class Outages:
    """When something is down, in order of time; ask for ever later moments."""

    def __init__(self, failures: Failures, number: int) -> None:
        self._failures = failures
        self._random = Random(f"{failures.seed} {number}")
        self._begin = self._end = 0.0

    def end(self, now: float) -> float:
        """End of the outage that contains `now`; `now` itself if there is none."""
        self.begin(now)
        return self._end if self._begin <= now else now

    def begin(self, now: float) -> float:
        """Begin of the outage that contains `now` or, if there is none, of the next one."""
        while self._end <= now:
            self._begin = self._end + self._random.expovariate(1 / self._failures.every)
            self._end = self._begin + self._random.expovariate(1 / self._failures.back)
        return self._begin


@dataclass(frozen=True)
class Window:
    """A calibration or maintenance window: no payload starts for `lasts` seconds from `at`."""

    at: Seconds
    lasts: Annotated[float, Gt(0)]
    every: Annotated[float, Gt(0)] | None = None
    """Seconds from one window's start to the next; None if it does not recur."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.every is not None and self.lasts >= self.every:
            raise ValueError("a window has to last less than the time from one to the next")

    def end(self, now: float) -> float:
        """End of the window that contains `now`; `now` itself if there is none."""
        if now < self.at:
            return now
        times = floor((now - self.at) / self.every) if self.every else 0
        return max(now, self.at + times * (self.every or 0.0) + self.lasts)
