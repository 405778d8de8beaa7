"""Typed wrappers of numba: kernels are compiled once, cached on disk, and release the GIL."""

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
    """Compile a function with strict arithmetic."""
    return cast("Callable[Given, Result]", numba.njit(**EXACT)(function))


def compiled_sums(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Compile a function whose sums may be reordered."""
    return cast("Callable[Given, Result]", numba.njit(**REORDERED)(function))


def compiled_inner(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Do the same for a function that only kernels call; it loads faster without a wrapper."""
    return cast("Callable[Given, Result]", numba.njit(**INNER)(function))
