"""Calls: what a node runs for a session, or for several short tasks in a row.

Nodes import this file, so it imports almost nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any, NamedTuple

Called = tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]
"""A function with its arguments."""


class Initializer(NamedTuple):
    """A function that each process calls once before its first call of a session."""

    session: str
    function: Callable[..., object]
    args: tuple[Any, ...]

    def run_once(self) -> None:
        """Call the initializer unless this process already has."""
        if self.session not in _initialized:
            try:
                self.function(*self.args)
            except Exception as error:
                _initialized[self.session] = f"{type(error).__name__}: {error}"
            else:
                _initialized[self.session] = ""
        if why := _initialized[self.session]:
            name = getattr(self.function, "__qualname__", self.function)
            raise InitializerFailed(f"the initializer {name} failed on a node: {why}")


_initialized: dict[str, str] = {}
"""For each session, why its initializer failed in this process; empty if it succeeded."""


class InitializerFailed(RuntimeError):  # noqa: N818 - the name says what happened
    """A session's initializer failed, so no call can be made."""


class TimedResult:
    """The result of one call and its duration in seconds."""

    def __init__(self, value: Any, seconds: float) -> None:
        self._value = value
        self.seconds = seconds

    def take(self) -> Any:
        """Return the value and drop the reference to it."""
        value, self._value = self._value, None
        return value

    def __repr__(self) -> str:
        return repr(self._value)  # shown in error messages


class CallResult(NamedTuple):
    """The result of one of several calls, pickled separately so that it cannot spoil the others."""

    data: bytes
    seconds: float
    error: str = ""
    """Error text of a failed call; `data` then holds the exception if it can be pickled."""
    lines: Sequence[str] = ()
    """The user's lines that led to the error."""

    @property
    def value(self) -> Any:
        """The call's return value or exception."""
        return pickle.loads(self.data)

    @property
    def exception(self) -> Exception | None:
        """The exception of a failed call; None if it cannot be unpickled here."""
        try:
            error = self.value
        except Exception:
            return None
        return error if isinstance(error, Exception) else None


def run_call(
    initializer: Initializer | None,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> TimedResult:
    """Make a call."""
    if initializer is not None:
        initializer.run_once()
    began = perf_counter()
    result = function(*args, **kwargs)
    return TimedResult(result, perf_counter() - began)


def run_calls(
    initializer: Initializer | None, calls: Sequence[Called], limit: float = inf
) -> list[CallResult]:
    """Make several calls; after `limit` seconds, begin no other. Return those that were made."""
    if initializer is not None:
        initializer.run_once()
    results: list[CallResult] = []
    first = last = perf_counter()
    for call in calls:
        data, *failure = _outcome(*call)
        began, last = last, perf_counter()
        results.append(CallResult(data, last - began, *failure))
        if last - first > limit:
            break
    return results


def _outcome(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """The pickled result; of a call that fails, the pickled exception, its text and lines."""
    try:
        return (_dumps(function(*args, **kwargs)),)
    except Exception as error:
        from qtide.core.errors import definition, own_lines  # imported late, as it is seldom needed

        said = f"{type(error).__name__}: {error}", own_lines(error) or definition(function)
        try:
            return (_dumps_error(error), *said)
        except Exception:
            return (b"", *said)


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:
        from qtide.core.values import dumps  # imported late: cloudpickle is slow and seldom needed

        try:
            return dumps(value)
        except Exception as error:
            shown = repr(value)[:80]
            raise TypeError(
                f"the result {shown} cannot be pickled ({error}); return plain data or arrays"
            ) from None


def _dumps_error(error: Exception) -> bytes:
    from qtide.core.values import CausedError  # imported late, as above

    try:
        return _dumps(CausedError(error))
    except Exception:  # its cause cannot be pickled
        return _dumps(error)
