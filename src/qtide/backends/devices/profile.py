"""Timing profiles: how long each technology takes for a payload; the data is in profiles.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from qtide.backends.payloads.payload import Burst, circuits_in
from qtide.core.errors import UsageError


@dataclass(frozen=True)
class Profile:
    """A fixed time per payload and a time per shot of each circuit, in seconds."""

    name: str
    payload_s: float
    shot_s: float
    shots: int

    def seconds(self, payload: Any, shots: int | None = None) -> float:
        """How long the payload occupies the device."""
        if isinstance(payload, Burst) and payload.seconds is not None:
            return payload.seconds
        shots = self.shots if shots is None else shots
        return self.payload_s + self.shot_s * shots * circuits_in(payload)


@dataclass(frozen=True)
class Cost:
    """Expected time of a payload on a device without a timing profile, to an order of magnitude."""

    fixed: float
    """Seconds per payload."""
    shot: float = 0.0
    """Seconds per shot of the whole payload."""

    def seconds(self, shots: int) -> float:
        """The expected time with the given number of shots."""
        return self.fixed + self.shot * shots


UNTIMED = Profile("untimed", 0.0, 0.0, 1000)
"""The profile of a device that takes its own time."""


@cache
def profiles() -> dict[str, Profile]:
    """All profiles by name."""
    table = tomllib.loads(files("qtide.backends.devices").joinpath("profiles.toml").read_text())
    return {name: Profile(name, **entries) for name, entries in table.items()}


def profile(name: str) -> Profile:
    """The profile of that name."""
    try:
        return profiles()[name]
    except KeyError:
        known = ", ".join(sorted(profiles()))
        raise UsageError(f"there is no QPU profile {name!r}; there are: {known}") from None
