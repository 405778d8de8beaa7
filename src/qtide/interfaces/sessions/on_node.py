"""What a node calls for a session: one call, or several short ones in a row."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple


class CallResult(NamedTuple):
    """What became of one of several calls: pickled, since one that cannot be must not harm others.

    An error is the exception itself if it can be pickled, and its text otherwise.
    """

    data: bytes
    error: str = ""

    @property
    def value(self) -> Any:
        """What the call returned, or raised."""
        return pickle.loads(self.data)


class Timed:
    """The result of one call, and its seconds."""

    def __init__(self, value: Any, seconds: float) -> None:
        self.value = value
        self.seconds = seconds

    def __repr__(self) -> str:
        return repr(self.value)  # errors show it


Called = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]


def one(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Timed:
    """The result of a call, and its seconds."""
    began = perf_counter()
    result = function(*args, **kwargs)
    return Timed(result, perf_counter() - began)


def several(calls: Sequence[Called]) -> tuple[list[CallResult], float]:
    """What became of each call, and the seconds of all."""
    began = perf_counter()
    return [_said(*call) for call in calls], perf_counter() - began


def _said(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> CallResult:
    try:
        return CallResult(_dumps(function(*args, **kwargs)))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        try:
            return CallResult(_dumps(error), text)
        except Exception:
            return CallResult(b"", text)


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        from qtide.core.values import dumps

        try:
            return dumps(value)
        except Exception as error:
            shown = repr(value)[:80]
            raise TypeError(
                f"the result {shown} cannot be pickled ({error}); return plain data or arrays"
            ) from None
