"""Read and write JSON of untrusted clients; errors say in one sentence what is wrong and where."""

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
    """Abbreviate the value, so that messages stay short whatever was sent."""
    return _short.repr(value)


def refuse(where: str, sentence: str) -> NoReturn:
    """Refuse the payload, naming the place and the reason."""
    raise PayloadRefused(f"{where}: {sentence}" if where else sentence)


def read(data: bytes, what: str, most: int = MOST_BYTES) -> Any:
    """Decode JSON of at most `most` bytes; refuse NaN and infinities."""
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
    """Encode the value as JSON."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadRefused(f"{what} cannot be written as JSON: {error}") from None


def write_exactly(value: Any, what: str) -> bytes:
    """Encode the value as JSON; refuse one that JSON would change, such as a tuple."""
    data = write(value, what)
    if json.loads(data) != value:
        raise PayloadRefused(f"JSON would change {what}; use only lists, strings and numbers")
    return data


def record(value: Any, where: str) -> dict[str, Any]:
    """Return the value, which must be an object."""
    if not isinstance(value, dict):
        refuse(where, f"an object is expected, not {brief(value)}")
    return value


def sequence(value: Any, where: str, most: int | None = None) -> list[Any]:
    """Return the value, which must be a list of at most `most` entries."""
    if not isinstance(value, list):
        refuse(where, f"a list is expected, not {brief(value)}")
    if most is not None and len(value) > most:
        refuse(where, f"there are {len(value)}; at most {most} are allowed")
    return value


def text(value: Any, where: str) -> str:
    """Return the value, which must be a string of at most `MOST_TEXT` characters."""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        refuse(where, f"a string of at most {MOST_TEXT} characters is expected, not {brief(value)}")
    return value


def number(value: Any, where: str) -> float:
    """Return the value as a float; it must be a finite number."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    return refuse(where, f"a finite number is expected, not {brief(value)}")
