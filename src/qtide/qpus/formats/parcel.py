"""A parcel: the name of a format and bytes. One module a format knows what they stand for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from qtide.errors import PhaseError
from qtide.qpus.formats.iqm import IqmBatch
from qtide.qpus.payload import Burst, PayloadRefused
from qtide.qpus.shots import Shots

PAYLOADS = ("burst", "bqm", "qpy", "qasm3", "iqm")
ANSWERS = ("samples", "shots", "value")


class AnswerUnreadable(PhaseError):  # noqa: N818 - what happened
    """An answer arrived that is none."""


@dataclass(frozen=True)
class Parcel:
    """A payload or an answer on its way."""

    format: str
    data: bytes


def pack(payload: Any) -> Parcel:
    """The payload as bytes; raises PayloadRefused where there is no format for it."""
    name = _payload_format(payload)
    return Parcel(name, _module(name).pack(payload))


def unpack(parcel: Parcel, *, trusted: bool = False) -> Any:
    """The payload again; raises PayloadRefused whatever is wrong with the bytes.

    Vendors' readers are given bytes of strangers in a process that may die; `trusted` spares that
    where `pack` has made the bytes on this side.
    """
    if parcel.format not in PAYLOADS:
        known = ", ".join(PAYLOADS)
        raise PayloadRefused(f"there is no payload format {parcel.format!r}; there are: {known}")
    module = _module(parcel.format)
    read = getattr(module, "unpack_trusted", module.unpack) if trusted else module.unpack
    return read(parcel.data)


def pack_answer(answer: Any) -> Parcel:
    """The answer of a device as bytes."""
    name = _answer_format(answer)
    return Parcel(name, _module(name).pack(answer))


def unpack_answer(parcel: Parcel) -> Any:
    """The answer again; raises AnswerUnreadable whatever is wrong with the bytes."""
    if parcel.format not in ANSWERS:
        raise AnswerUnreadable(f"there is no answer format {parcel.format!r}")
    try:
        return _module(parcel.format).unpack(parcel.data)
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
    return import_module(f"qtide.qpus.formats.{name}")
