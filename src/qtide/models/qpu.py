"""The QPUs of a site as its file describes them, and the vQPU service that shares them."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log, sqrt
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from qtide.models.strict import STRICT, Seconds


@dataclass(frozen=True)
class Window:
    """A calibration or a maintenance: no payload starts from `at` on for `lasts` seconds."""

    at: Seconds
    lasts: Annotated[float, Gt(0)]
    every: Annotated[float, Gt(0)] | None = None
    """After how many seconds it comes again; never, if it is not given."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.every is not None and self.lasts >= self.every:
            raise ValueError("a window has to last less than the time from one to the next")

    def end(self, now: float) -> float:
        """When the window in which `now` lies is over; `now` itself if there is none."""
        if now < self.at:
            return now
        times = floor((now - self.at) / self.every) if self.every else 0
        return max(now, self.at + times * (self.every or 0.0) + self.lasts)


@dataclass(frozen=True)
class QpuModel:
    """What a QPU takes beside the time of its payloads."""

    number: Annotated[int, Ge(1)] = 1
    """How many of them there are."""
    licences: Annotated[int, Ge(1)] | None = None
    """Leases of all QPUs together, as a batch system counts them; by default, each QPU has as many
    as it has virtual QPUs."""
    offload: Seconds = 0.0
    """Seconds per payload until it is in the device's queue, and its answer back."""
    wait: Seconds = 0.0
    """Seconds per payload that others' payloads are before it."""
    spread: Literal["fixed", "exponential", "lognormal"] = "fixed"
    """How the time of a payload varies around what its profile says,"""
    variation: Seconds = 0.2
    """and the coefficient of variation of the lognormal one."""
    order: Literal["jobs", "arrival"] = "jobs"
    """Without the service: whether earlier jobs' payloads go first, or those that came first."""
    windows: tuple[Window, ...] = ()

    __pydantic_config__ = STRICT

    def back(self, now: float) -> float:
        """When the device can start a payload: now, or after its windows."""
        later = max((window.end(now) for window in self.windows), default=now)
        return later if later == now else self.back(later)

    def factor(self, seed: int) -> float:
        """How many times as long as expected a payload takes: the same for the same seed."""
        if self.spread == "fixed":
            return 1.0
        random = Random(seed)
        if self.spread == "exponential":
            return random.expovariate(1.0)
        sigma = sqrt(log(1 + self.variation**2))
        return random.lognormvariate(-(sigma**2) / 2, sigma)


@dataclass(frozen=True)
class ServiceModel:
    """The vQPU service of a site: what its configuration says, and what its clients ask for."""

    policy: str = "fair"
    """In which order payloads go, by the name of the service's policy."""
    promised: Annotated[float, Ge(0), Lt(1)] = 0.5
    """The share of the time ahead that may be promised."""
    longest: Annotated[float, Gt(0)] | None = None
    """The longest wait that clients ask to be promised; who is refused submits without."""
    limit: Annotated[float, Gt(0)] = 3600.0
    """How long a payload may occupy a device; one that takes longer fails."""
    commit: Seconds = 0.0004
    """Seconds that the store takes to write."""
    half_life: Annotated[float, Gt(0)] = 86_400.0
    """Seconds after which usage counts half for fair share."""

    __pydantic_config__ = STRICT
