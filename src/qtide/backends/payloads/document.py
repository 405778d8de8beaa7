"""JSON from untrusted clients: whatever is wrong with it, one sentence says what and where."""

from __future__ import annotations

import json
import math
from reprlib import Repr
from typing import Any, NoReturn

from qtide.backends.payloads.guard import MOST_BYTES, MOST_TEXT
from qtide.backends.payloads.payload import PayloadRefused

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60


def brief(value: Any) -> str:
    """The value in a few characters, so that messages stay short whatever was sent."""
    return _short.repr(value)


def refuse(where: str, sentence: str) -> NoReturn:
    """Refuse the payload, naming the place and the reason."""
    raise PayloadRefused(f"{where}: {sentence}" if where else sentence)


def read(data: bytes, what: str, most: int = MOST_BYTES) -> Any:
    """The value that the bytes encode, of which there may be so many."""
    if len(data) > most:
        raise PayloadRefused(f"{what} has {len(data)} bytes; at most {most} are allowed")
    try:
        return json.loads(data, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PayloadRefused(f"{what} is not valid JSON: {reason}") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a finite number")


def write(value: Any, what: str) -> bytes:
    """The bytes that encode the value."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"{what} cannot be written as JSON: {error}") from None


def record(value: Any, where: str) -> dict[str, Any]:
    """The value, which has to be an object."""
    if not isinstance(value, dict):
        refuse(where, f"an object is expected, not {brief(value)}")
    return value


def sequence(value: Any, where: str, most: int | None = None) -> list[Any]:
    """The value, which has to be a list of at most `most` entries."""
    if not isinstance(value, list):
        refuse(where, f"a list is expected, not {brief(value)}")
    if most is not None and len(value) > most:
        refuse(where, f"there are {len(value)}; at most {most} are allowed")
    return value


def text(value: Any, where: str) -> str:
    """The value, which has to be a string that is not too long."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        refuse(where, f"a string of at most {MOST_TEXT} characters is expected, not {brief(value)}")
    return value


def number(value: Any, where: str) -> float:
    """The value, which has to be a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    return refuse(where, f"a finite number is expected, not {brief(value)}")
