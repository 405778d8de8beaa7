"""A rehearsal: a call whose result nobody needs, so that a node has loaded what the next one uses.

It runs on nodes, so it imports nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any


def rehearse(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    rank: int = 0,
    size: int = 1,
) -> None:
    """Call a function; if it fails, the call that counts will say so."""
    with suppress(Exception):
        function(*args, **kwargs)


def load(function: Callable[..., Any], rank: int = 0, size: int = 1) -> None:
    """Do nothing: its module was imported to get here."""
