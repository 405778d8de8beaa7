"""Typed wrappers of numba: kernels compiled once, cached on disk, without the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

Given = ParamSpec("Given")
Result = TypeVar("Result")

EXACT: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True}
# Sums may be reordered to use vector units. Infinities, NaN and the square root stay exact.
REORDERED: dict[str, Any] = {**EXACT, "fastmath": {"reassoc", "contract", "nsz"}}
INNER: dict[str, Any] = {**REORDERED, "no_cpython_wrapper": True}


def compiled(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function as machine code with strict arithmetic."""
    return cast("Callable[Given, Result]", numba.njit(**EXACT)(function))


def compiled_sums(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function as machine code that may sum in any order."""
    return cast("Callable[Given, Result]", numba.njit(**REORDERED)(function))


def compiled_inner(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same for a function that only kernels call: without a Python wrapper, it loads faster."""
    return cast("Callable[Given, Result]", numba.njit(**INNER)(function))
