"""The QPUs of a modelled site, and the service that shares them."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from random import Random
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from qtide.backends.models.failures import STRICT, Failures, Seconds, Window


@dataclass(frozen=True)
class QpuModel:
    """The QPUs of a site: their number, and their payloads' delays."""

    number: Annotated[int, Ge(1)] = 1
    """Number of QPUs."""
    licences: Annotated[int, Ge(1)] | None = None
    """Total leases of all QPUs, as a batch system counts them; by default, each QPU has as many as
    it has virtual QPUs."""
    offload: Seconds = 0.0
    """Seconds to send a payload to the device's queue and to return its answer."""
    wait: Seconds = 0.0
    """Seconds that each payload waits for other users' payloads."""
    spread: Literal["fixed", "exponential", "lognormal"] = "fixed"
    """Distribution of a payload's time around that of its profile."""
    variation: Seconds = 0.2
    """Coefficient of variation of a lognormal spread."""
    order: Literal["jobs", "arrival"] = "jobs"
    """Without the service: whether payloads run in order of their jobs or of their own arrival."""
    windows: tuple[Window, ...] = ()
    failures: Failures | None = None
    """Random failures of each QPU: the payload on it is lost, and no other starts until repair."""

    __pydantic_config__ = STRICT

    def back(self, now: float) -> float:
        """Earliest time at which the device can start a payload: now, or after its windows."""
        later = max((window.end(now) for window in self.windows), default=now)
        return later if later == now else self.back(later)

    def factor(self, seed: int) -> float:
        """Random ratio of a payload's actual to its expected time, fixed by the seed."""
        if self.spread == "fixed":
            return 1.0
        random = Random(seed)
        if self.spread == "exponential":
            return random.expovariate(1.0)
        sigma = sqrt(log(1 + self.variation**2))
        return random.lognormvariate(-(sigma**2) / 2, sigma)


@dataclass(frozen=True)
class ServiceModel:
    """The vQPU service of a site: its configuration, and its clients' demands."""

    policy: str = "fair"
    """Name of the policy by which the service orders payloads."""
    promised: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Share of future device time that may be promised."""
    longest: Annotated[float, Gt(0)] | None = None
    """Longest wait that clients request; a refused client submits without this limit."""
    limit: Annotated[float, Gt(0)] = 3600.0
    """Seconds that a payload may occupy a device; one that takes longer fails."""
    commit: Seconds = 0.0004
    """Seconds for a write to the store."""
    half_life: Annotated[float, Gt(0)] = 86_400.0
    """Half-life of usage for fair share, in seconds."""
    failures: Failures | None = None
    """Random failures of the service: queued payloads wait, those on a device start again."""

    __pydantic_config__ = STRICT
