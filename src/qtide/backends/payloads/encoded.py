"""Encoded payloads and answers: the name of a format, and bytes.

Formats are plug-ins, one module each. The service in front of the devices does not look into
payloads and imports no vendor's SDK; so a format imports one only when it meets such a payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from qtide.backends.payloads.payload import PayloadRefused
from qtide.core.errors import PhaseError
from qtide.core.plugins import Plugins


class Format(Protocol):
    """What the module of a format provides.

    It may also have `unpack_trusted`, for bytes that our own `pack` made.
    """

    def recognises(self, value: Any, /) -> bool:
        """Whether the value has this format."""

    def pack(self, value: Any, /) -> bytes:
        """The value as bytes; raises PayloadRefused if it cannot be."""

    def unpack(self, data: bytes, /) -> Any:
        """The value again; raises PayloadRefused whatever is wrong with the bytes."""


FORMATS: Plugins[Format] = Plugins("qtide.formats", "payload format")
ANSWERS: Plugins[Format] = Plugins("qtide.answers", "answer format")
VALUE = "value"
"""The format of answers that no other format recognises."""


class AnswerUnreadable(PhaseError):  # noqa: N818 - what happened
    """An answer cannot be decoded."""


@dataclass(frozen=True)
class Encoded:
    """A payload or an answer as bytes."""

    format: str
    data: bytes


def format_of(payload: Any) -> str | None:
    """The name of the format that recognises the payload, if one does."""
    return _recognised(FORMATS, payload)


def encode(payload: Any) -> Encoded:
    """The payload as bytes; raises PayloadRefused if there is no format for it."""
    name = format_of(payload)
    if name is None:
        raise PayloadRefused(f"there is no format for a payload of type {type(payload).__name__}")
    return Encoded(name, FORMATS.load(name).pack(payload))


def decode(encoded: Encoded, *, trusted: bool = False) -> Any:
    """The payload again; raises PayloadRefused whatever is wrong with the bytes.

    Vendors' readers get untrusted bytes only in a process that may die; with `trusted`, for bytes
    that our own `encode` made, that process is spared.
    """
    if encoded.format not in FORMATS.names():
        known = ", ".join(FORMATS.names())
        raise PayloadRefused(f"there is no payload format {encoded.format!r}; there are: {known}")
    form = FORMATS.load(encoded.format)
    read = getattr(form, "unpack_trusted", form.unpack) if trusted else form.unpack
    return read(encoded.data)


def encode_answer(answer: Any) -> Encoded:
    """The answer of a device as bytes."""
    name = _recognised(ANSWERS, answer) or VALUE
    return Encoded(name, ANSWERS.load(name).pack(answer))


def decode_answer(encoded: Encoded) -> Any:
    """The answer again; raises AnswerUnreadable whatever is wrong with the bytes."""
    if encoded.format not in ANSWERS.names():
        raise AnswerUnreadable(f"there is no answer format {encoded.format!r}")
    try:
        return ANSWERS.load(encoded.format).unpack(encoded.data)
    except PayloadRefused as error:
        raise AnswerUnreadable(str(error)) from None


def is_duration(name: str) -> bool:
    """Whether payloads of this format are only durations, which every device takes."""
    return _property(name, "seconds") is not None


def stated_seconds(encoded: Encoded) -> float | None:
    """How long the payload occupies the device, if it is a duration that says so.

    Raises PayloadRefused if it is a duration whose bytes are not valid.
    """
    read = _property(encoded.format, "seconds")
    seconds: float | None = None if read is None else read(encoded.data)
    return seconds


def _property(name: str, which: str) -> Any:
    """What a format says about itself; None if it says nothing, or is not installed here."""
    return getattr(FORMATS.load(name), which, None) if name in FORMATS.names() else None


def _recognised(formats: Plugins[Format], value: Any) -> str | None:
    return next((name for name in formats.names() if formats.load(name).recognises(value)), None)
