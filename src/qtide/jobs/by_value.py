"""Pickles by value, so that code travels as well; imported only by whoever needs that."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pickle import PickleBuffer
from types import FunctionType, MethodType
from typing import Any

import cloudpickle


def dumps(value: Any, keep: Callable[[PickleBuffer], bool] | None = None) -> bytes:
    """The pickle of a value; large buffers are offered to `keep`."""
    written = BytesIO()
    Pickler(written, protocol=5, buffer_callback=keep).dump(value)
    return written.getvalue()


def _method(method: MethodType) -> tuple[Any, ...]:
    """By its name, if its class is compiled: such functions have no code that could travel.

    dimod's models are rebuilt by one, and so could not be the argument of a task.
    """
    if isinstance(method.__func__, FunctionType):
        return MethodType, (method.__func__, method.__self__)
    return getattr, (method.__self__, method.__func__.__name__)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's, which takes compiled functions for others."""

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child({MethodType: _method})
