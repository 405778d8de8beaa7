"""Python's collector of cycles: it goes through all objects, however many there are."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 10_000
"""Objects from which on it matters; for fewer, the collector is left alone."""


@contextmanager
def making(objects: int) -> Iterator[None]:
    """Make many objects that stay: the collector neither interrupts it, nor sees them later."""
    was_on = gc.isenabled() and objects >= MANY
    if was_on:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
