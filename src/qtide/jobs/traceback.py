"""The user's own lines of a traceback: the ones a user can fix."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

HOME = Path(__file__).parents[1]


def own_lines(error: BaseException) -> list[str]:
    """The lines that are neither qtide's nor a library's; if there are none, the library's last."""
    frames = traceback.extract_tb(error.__traceback__)
    others = [each for each in frames if not Path(each.filename).is_relative_to(HOME)]
    own = [each for each in others if not foreign(each.filename)] or others[-1:]
    return [f"{each.filename}:{each.lineno} in {each.name}: {each.line}" for each in own]


def definition(function: object) -> list[str]:
    """Where a function is defined, if it is written in Python."""
    code = getattr(function, "__code__", None)
    return [f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"] if code else []


def foreign(filename: str) -> bool:
    """Whether a file is qtide's, Python's or a library's."""
    path = Path(filename)
    inside = any(path.is_relative_to(place) for place in (HOME, Path(os.__file__).parent))
    return inside or "site-packages" in path.parts or filename.startswith("<frozen")
