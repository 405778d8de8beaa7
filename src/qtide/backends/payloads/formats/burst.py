"""Bursts as JSON, for synthetic workloads on a real service."""

from __future__ import annotations

from qtide.backends.payloads import document
from qtide.backends.payloads.payload import Burst

WHAT = "the burst"


def recognises(value: object) -> bool:
    """Whether the value is a burst."""
    return isinstance(value, Burst)


def pack(burst: Burst) -> bytes:
    """Encode a burst as an object with its two fields."""
    return document.write_exactly({"seconds": burst.seconds, "answer": burst.answer}, WHAT)


def unpack(data: bytes) -> Burst:
    """Decode a burst."""
    fields = document.record(document.read(data, WHAT), WHAT)
    if unknown := set(fields) - {"seconds", "answer"}:
        document.refuse(WHAT, f"there is no field {document.brief(sorted(unknown)[0])}")
    document.write_exactly(fields, WHAT)
    seconds = fields.get("seconds")
    if seconds is not None:
        seconds = document.number(seconds, "the burst's seconds")
        if seconds < 0:
            document.refuse("the burst's seconds", f"they cannot be negative, but {seconds:g} is")
    return Burst(seconds, fields.get("answer"))


def seconds(data: bytes) -> float | None:
    """How long the burst occupies the device, if it says so."""
    return unpack(data).seconds
