"""A user's choice of a device, in one word: which kind, with which options and which timing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from qtide.devices.device import Device
from qtide.devices.kinds import DEVICES, make
from qtide.devices.profile import UNTIMED, Profile, profile, profiles
from qtide.errors import UsageError

FORM = "DEVICE[:PROFILE][,OPTION=VALUE...]"
LIMIT = 600.0
"""Seconds that the answer to a payload may take to compute."""
TIMED_ONLY = "annealer"
"""The device of a choice that names only a timing profile."""


@dataclass(frozen=True)
class Choice:
    """A device as `--qpu` names it; the options are those of a device of the service."""

    kind: str
    options: dict[str, Any]
    profile_name: str | None = None
    limit: float = LIMIT

    @cached_property
    def device(self) -> Device:
        """The device itself, before it has imported anything."""
        return make(self.kind, self.options)

    @property
    def profile(self) -> Profile:
        """How long it takes: as the profile says that was chosen, or the device's own one."""
        name = self.profile_name or self.device.usual_profile
        return UNTIMED if name is None else profile(name)

    def check(self) -> Choice:
        """The same; UsageError if there is no such device, option or profile."""
        _ = self.device, self.profile
        return self


def choice(words: str) -> Choice:
    """The choice in words such as `star`, `star:trapped-ion` or `gate,qubits=7,noisy`."""
    head, *rest = _parts(words)
    name, _, timing = head.partition(":")
    options = dict(_option(part, words) for part in rest)
    if timing:
        options["profile"] = timing
    if name not in DEVICES.names():
        if name not in profiles():
            raise _unknown(name)
        if "profile" in options:
            raise UsageError(f"{name!r} is a timing: name a device first, as in annealer:{name}")
        name, options["profile"] = TIMED_ONLY, name
    timing, limit = options.pop("profile", None), _seconds(options.pop("limit", LIMIT))
    return Choice(name, options, timing, limit).check()


def _parts(words: str) -> list[str]:
    """The parts between commas, except those inside of brackets."""
    parts: list[str] = []
    for piece in words.split(","):
        if parts and parts[-1].count("[") > parts[-1].count("]"):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return parts


def _option(part: str, words: str) -> tuple[str, Any]:
    """An option and its value, as TOML has it, or a text; without a value, it is a flag."""
    name, equals, text = part.strip().partition("=")
    if not name or (equals and not text):
        raise UsageError(f"--qpu {words} cannot be read: it has the form {FORM}")
    try:
        value = tomllib.loads(f"value = {text}")["value"] if equals else True
    except tomllib.TOMLDecodeError:
        value = text
    return name.replace("-", "_"), value


def _seconds(limit: Any) -> float:
    if isinstance(limit, int | float) and limit is not True and 0 < limit < inf:
        return float(limit)
    raise UsageError(f"the QPU's limit is a number of seconds above 0, not {limit!r}")


def _unknown(name: str) -> UsageError:
    devices, timings = ", ".join(DEVICES.names()), ", ".join(sorted(profiles()))
    return UsageError(
        f"there is no QPU {name!r}: name a device ({devices}), a timing profile for the "
        f"{TIMED_ONLY} ({timings}), or a device of a service as http://HOST:PORT/DEVICE"
    )
