"""Runs: a program on a site under a strategy, in a folder that can be resumed.

Called, `qtide.runs()` is the list of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qtide.interfaces.python.run import Run


class _Callable(ModuleType):
    """The package has the name of the function; so it is both."""

    def __call__(self, folder: str | Path | None = None) -> list[Run[Any]]:
        """All runs in the folder of runs, the newest last, as `qtide list --all` lists them."""
        from qtide.interfaces.python.runnable import runs

        return runs(folder)


sys.modules[__name__].__class__ = _Callable
