"""Payloads: what a quantum phase submits to a QPU; they are sent as a format name and bytes.

Each device says which types it takes. So far, these are: a `dimod.BinaryQuadraticModel`; one
circuit or a list of them, as `qiskit.QuantumCircuit`, OpenQASM or an `IqmBatch`; `Pubs`, which are
circuits with arrays of parameter values; and a `Burst`, which is only a duration.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from qtide.core.errors import PhaseError
from qtide.core.plugins import Plugins


class PayloadRefused(PhaseError):  # noqa: N818 - what happened
    """The device does not take this payload."""


def circuits_in(payload: Any) -> int:
    """The number of circuits in a payload; other payloads count as one."""
    executions = getattr(payload, "executions", None)
    if isinstance(executions, int):
        return executions
    batch = getattr(payload, "circuits", payload)
    return len(batch) if isinstance(batch, list | tuple) else 1


def qubits_in(payload: Any) -> int:
    """The number of qubits of the widest circuit; 0 if the payload does not tell."""
    batch = getattr(payload, "circuits", payload)
    circuits = batch if isinstance(batch, list | tuple) else [batch]
    found = (getattr(each, "num_qubits", None) for each in circuits)
    return max((each for each in found if isinstance(each, int)), default=0)


@dataclass(frozen=True)
class Burst:
    """A payload that is only a duration: it occupies a QPU for `seconds` and returns `answer`.

    Without `seconds`, the device's timing profile decides.
    """

    seconds: float | None = None
    answer: Any = None


def is_of(value: Any, package: str, name: str) -> bool:
    """Whether the value is an instance of a vendor's class, without importing its package."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))


class Format(Protocol):
    """A format: a module, or an object in one, with these three functions.

    It may also have:

    - `unpack_trusted(data)`: a faster `unpack` for bytes written by its own `pack`;
    - `is_circuits = True`: its payloads are circuits, which a program fits to its device;
    - `seconds(data)`: its payloads are only durations. Returns how long one occupies the device, or
      None if the device's timing profile decides. Every device takes such payloads unchecked, so
      `seconds` must refuse invalid bytes, as `unpack` does.
    """

    def recognises(self, value: Any, /) -> bool:
        """Whether this format can encode the value."""

    def pack(self, value: Any, /) -> bytes:
        """Encode the value as bytes; raises PayloadRefused if that is impossible."""

    def unpack(self, data: bytes, /) -> Any:
        """Decode the value; raises PayloadRefused for invalid bytes."""


FORMATS: Plugins[Format] = Plugins("qtide.formats", "payload format")
ANSWERS: Plugins[Format] = Plugins("qtide.answers", "answer format")
VALUE = "value"
"""The format of answers that no other format recognises."""


class AnswerUnreadable(PhaseError):  # noqa: N818 - what happened
    """The answer cannot be decoded."""


@dataclass(frozen=True)
class Encoded:
    """A payload or an answer as bytes."""

    format: str
    data: bytes


def encode(payload: Any) -> Encoded:
    """Encode the payload; raises PayloadRefused if no format recognises it."""
    name = format_of(payload)
    if name is None:
        empty = isinstance(payload, list | tuple) and not payload
        what = "an empty list" if empty else f"type {type(payload).__name__}"
        raise PayloadRefused(f"there is no format for a payload of {what}")
    return Encoded(name, FORMATS.load(name).pack(payload))


def decode(encoded: Encoded, *, trusted: bool = False) -> Any:
    """Decode the payload; raises PayloadRefused for invalid bytes.

    Formats that need it first read untrusted bytes in a child process, which may die. Pass
    `trusted` for bytes written by our own `encode`, to read them directly.
    """
    if encoded.format not in FORMATS.names():
        known = ", ".join(FORMATS.names())
        raise PayloadRefused(f"there is no payload format {encoded.format!r}; there are: {known}")
    form = FORMATS.load(encoded.format)
    read = getattr(form, "unpack_trusted", form.unpack) if trusted else form.unpack
    return read(encoded.data)


def encode_answer(answer: Any) -> Encoded:
    """Encode a device's answer."""
    name = _recognised(ANSWERS, answer) or VALUE
    return Encoded(name, ANSWERS.load(name).pack(answer))


def decode_answer(encoded: Encoded) -> Any:
    """Decode the answer; raises AnswerUnreadable for invalid bytes."""
    if encoded.format not in ANSWERS.names():
        raise AnswerUnreadable(f"there is no answer format {encoded.format!r}")
    try:
        return ANSWERS.load(encoded.format).unpack(encoded.data)
    except PayloadRefused as error:
        raise AnswerUnreadable(str(error)) from None


def format_of(payload: Any) -> str | None:
    """The name of the format that recognises the payload, if one does."""
    return _recognised(FORMATS, payload)


def is_circuits(name: str) -> bool:
    """Whether payloads of this format are circuits."""
    return bool(_property(name, "is_circuits"))


def is_duration(name: str) -> bool:
    """Whether payloads of this format are only durations, which every device takes."""
    return _property(name, "seconds") is not None


def stated_seconds(encoded: Encoded) -> float | None:
    """How long the payload occupies the device, if it is a duration that states it.

    Raises PayloadRefused if it is a duration with invalid bytes.
    """
    read = _property(encoded.format, "seconds")
    seconds: float | None = None if read is None else read(encoded.data)
    return seconds


def _recognised(formats: Plugins[Format], value: Any) -> str | None:
    return next((name for name in formats.names() if formats.load(name).recognises(value)), None)


def _property(name: str, which: str) -> Any:
    """An optional attribute of a format; None if it has none or is not installed here."""
    return getattr(FORMATS.load(name), which, None) if name in FORMATS.names() else None
