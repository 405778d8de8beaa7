"""What a program asks for has to be awaited; if it is thrown away instead, its author is told."""

from __future__ import annotations

import linecache
import sys
import warnings
from contextlib import suppress
from opcode import opmap
from types import FrameType

POP_TOP = opmap["POP_TOP"]
"""What Python does with the value of a statement that nobody uses."""


class Asked:
    """A task or a phase, from when it is created until it is awaited, or part of another one."""

    _used = False

    def use(self) -> None:
        """It is awaited, or part of what is."""
        object.__setattr__(self, "_used", True)

    def __del__(self) -> None:
        """Warn if it was a statement by itself, and only then: one in a variable may be meant."""
        if not self._used:
            with suppress(ValueError):  # the interpreter is ending
                if _is_statement(sys._getframe(1), f"{type(self).__name__.lower()}("):
                    why = f"{self} was never awaited, so it does not run: write `await {self}`"
                    warnings.warn(why, RuntimeWarning, stacklevel=2)


def _is_statement(frame: FrameType, word: str) -> bool:
    """Whether Python has just dropped the value of a statement that creates such a thing."""
    dropped = frame.f_code.co_code[frame.f_lasti] == POP_TOP
    return dropped and word in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
