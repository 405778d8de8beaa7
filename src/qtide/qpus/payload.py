"""Payloads: what a quantum phase hands to a QPU. Any type can be one; a device says what it takes.

So far: a `dimod.BinaryQuadraticModel`, and a `Burst`, which stands for a payload by its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qtide.errors import PhaseError


class PayloadRefused(PhaseError):  # noqa: N818 - what happened
    """The device does not take this payload."""


@dataclass(frozen=True)
class Burst:
    """A payload known by its length alone: it occupies a QPU for `seconds` and gives `answer`.

    Without `seconds`, the device's timing profile decides.
    """

    seconds: float | None = None
    answer: Any = None
