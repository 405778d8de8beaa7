"""Slurm's lists of nodes: from `c[1-3,07],gpu1` to names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from qtide.errors import QtideError

ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
"""Up to a comma that is not within brackets."""
RANGE = re.compile(r"(\d+)(?:-(\d+))?")
NOTHING = ("", "(null)", "None assigned")


def expand(text: str) -> list[str]:
    """The names in a list, in its order."""
    if text in NOTHING:
        return []
    items = ITEM.findall(text)
    if ",".join(items) != text:
        raise QtideError(f"Slurm's list of nodes cannot be read: {text!r}")
    return [name for item in items for name in _names(item)]


def _names(item: str) -> Iterator[str]:
    """Every bracket of an item multiplies its names."""
    parts = re.split(r"\[([^\]]*)\]", item)  # plain text and ranges in turn
    choices = [_numbers(part) if n % 2 else [part] for n, part in enumerate(parts)]
    return map("".join, product(*choices))


def _numbers(ranges: str) -> list[str]:
    return [number for part in ranges.split(",") for number in _range(part)]


def _range(part: str) -> Iterator[str]:
    """The first number's width holds for all."""
    found = RANGE.fullmatch(part)
    if found is None:
        raise QtideError(f"Slurm's list of nodes has a range that cannot be read: {part!r}")
    first, last = found[1], found[2] or found[1]
    return (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
