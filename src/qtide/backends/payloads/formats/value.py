"""Plain JSON values: what a burst carries as its answer."""

from __future__ import annotations

import json
from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_ANSWER
from qtide.backends.payloads.payload import PayloadRefused


def recognises(value: object) -> bool:
    """Never: it is the fallback if no other format fits."""
    return False


def pack(value: Any) -> bytes:
    """As JSON."""
    return written(value, "the answer")


def unpack(data: bytes) -> Any:
    """The value again."""
    return document.read(data, "the answer", MOST_ANSWER)


def written(value: Any, what: str) -> bytes:
    """The value's bytes, if they decode to the same value: JSON would turn tuples into lists."""
    data = document.write(value, what)
    if json.loads(data) != value:
        raise PayloadRefused(f"JSON would change {what}; use only lists, strings and numbers")
    return data
