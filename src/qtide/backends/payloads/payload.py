"""Payloads: what a quantum phase hands to a QPU.

A device says which types it takes. So far these are: a `dimod.BinaryQuadraticModel`; circuits, one
or a list of them, as `qiskit.QuantumCircuit`, as OpenQASM 3 or as an `IqmBatch`; and a `Burst`, a
payload that is only a duration.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from qtide.core.errors import PhaseError


class PayloadRefused(PhaseError):  # noqa: N818 - what happened
    """The device does not take this payload."""


def circuits_in(payload: Any) -> int:
    """How many circuits the payload makes the device run; other payloads count as one."""
    batch = getattr(payload, "circuits", payload)
    return len(batch) if isinstance(batch, list | tuple) else 1


def qubits_in(payload: Any) -> int:
    """The qubits of the widest circuit, as far as the payload tells; 0 if it does not."""
    batch = getattr(payload, "circuits", payload)
    circuits = batch if isinstance(batch, list | tuple) else [batch]
    found = (getattr(each, "num_qubits", None) for each in circuits)
    return max((each for each in found if isinstance(each, int)), default=0)


@dataclass(frozen=True)
class Burst:
    """A payload that is only a duration: it occupies a QPU for `seconds` and gives `answer`.

    Without `seconds`, the device's timing profile decides.
    """

    seconds: float | None = None
    answer: Any = None


def is_of(value: Any, package: str, name: str) -> bool:
    """Whether the value is of a vendor's class, without importing the vendor's package."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))
