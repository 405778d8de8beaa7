"""Bursts as JSON, for synthetic workloads on a real service."""

from __future__ import annotations

from qtide.backends.payloads import document
from qtide.backends.payloads.formats.value import written
from qtide.backends.payloads.payload import Burst


def recognises(value: object) -> bool:
    """Only bursts."""
    return isinstance(value, Burst)


def pack(burst: Burst) -> bytes:
    """As an object of its two fields."""
    fields = {"seconds": burst.seconds, "answer": burst.answer}
    return written(fields, "the burst")


def unpack(data: bytes) -> Burst:
    """The burst again."""
    fields = document.record(document.read(data, "the burst"), "the burst")
    if unknown := set(fields) - {"seconds", "answer"}:
        document.refuse("the burst", f"there is no field {document.brief(sorted(unknown)[0])}")
    written(fields, "the burst")
    seconds = fields.get("seconds")
    if seconds is not None:
        seconds = document.number(seconds, "the burst's seconds")
        if seconds < 0:
            document.refuse("the burst's seconds", f"they cannot be negative, but {seconds:g} is")
    return Burst(seconds, fields.get("answer"))


def seconds(data: bytes) -> float | None:
    """A burst is only a duration."""
    return unpack(data).seconds
