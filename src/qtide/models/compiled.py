"""Compiled by numba if it is installed; otherwise the same functions run as plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

Given = ParamSpec("Given")
Result = TypeVar("Result")


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function as machine code, which is kept on disk for the next process."""
    try:
        import numba
    except ImportError:
        return function
    return cast("Callable[Given, Result]", numba.njit(cache=True)(function))
