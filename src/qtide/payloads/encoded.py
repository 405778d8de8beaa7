"""A encoded: the name of a format and bytes. One module a format knows what they stand for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from qtide.errors import PhaseError
from qtide.payloads.formats.iqm import IqmBatch
from qtide.payloads.payload import Burst, PayloadRefused
from qtide.payloads.shots import Shots

PAYLOADS = ("burst", "bqm", "qpy", "qasm3", "iqm")
ANSWERS = ("samples", "shots", "value")


class AnswerUnreadable(PhaseError):  # noqa: N818 - what happened
    """An answer arrived that is none."""


@dataclass(frozen=True)
class Encoded:
    """A payload or an answer on its way."""

    format: str
    data: bytes


def encode(payload: Any) -> Encoded:
    """The payload as bytes; raises PayloadRefused where there is no format for it."""
    name = _payload_format(payload)
    return Encoded(name, _module(name).pack(payload))


def decode(encoded: Encoded, *, trusted: bool = False) -> Any:
    """The payload again; raises PayloadRefused whatever is wrong with the bytes.

    Vendors' readers are given bytes of strangers in a process that may die; `trusted` spares that
    where `pack` has made the bytes on this side.
    """
    if encoded.format not in PAYLOADS:
        known = ", ".join(PAYLOADS)
        raise PayloadRefused(f"there is no payload format {encoded.format!r}; there are: {known}")
    module = _module(encoded.format)
    read = getattr(module, "unpack_trusted", module.unpack) if trusted else module.unpack
    return read(encoded.data)


def encode_answer(answer: Any) -> Encoded:
    """The answer of a device as bytes."""
    name = _answer_format(answer)
    return Encoded(name, _module(name).pack(answer))


def decode_answer(encoded: Encoded) -> Any:
    """The answer again; raises AnswerUnreadable whatever is wrong with the bytes."""
    if encoded.format not in ANSWERS:
        raise AnswerUnreadable(f"there is no answer format {encoded.format!r}")
    try:
        return _module(encoded.format).unpack(encoded.data)
    except PayloadRefused as error:
        raise AnswerUnreadable(str(error)) from None


def _payload_format(payload: Any) -> str:
    one = payload[0] if isinstance(payload, list | tuple) and payload else payload
    if isinstance(payload, Burst):
        return "burst"
    if isinstance(payload, IqmBatch):
        return "iqm"
    if isinstance(one, str):
        return "qasm3"
    if _is(one, "qiskit", "QuantumCircuit"):
        return "qpy"
    if _is(payload, "dimod", "BinaryQuadraticModel"):
        return "bqm"
    raise PayloadRefused(f"there is no format for a payload of type {type(payload).__name__}")


def _answer_format(answer: Any) -> str:
    if _is(answer, "dimod", "SampleSet"):
        return "samples"
    if isinstance(answer, list) and answer and all(isinstance(one, Shots) for one in answer):
        return "shots"
    return "value"


def _is(value: Any, package: str, name: str) -> bool:
    """Whether it is of a vendor's class; nothing is before the vendor's package was imported."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))


def _module(name: str) -> Any:
    return import_module(f"qtide.payloads.formats.{name}")
