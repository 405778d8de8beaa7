"""Imports: which modules this process has to load, and how long each takes.

An `import` statement calls one function of Python's own for each module that is not loaded yet, and
for no other. It is timed here, so importing what is loaded costs nothing more.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from contextlib import suppress
from time import perf_counter
from types import ModuleType
from typing import Any


class Imports:
    """What tasks imported, by name; what a module imports in turn counts for that module.

    Many modules read the environment as they are loaded. So what is imported after a task has
    changed it takes time, but is not named: another process must not import it beforehand.
    """

    def __init__(self) -> None:
        self._modules: dict[str, float] = {}
        self._seconds = 0.0
        self._under_way = False
        self._thread = get_ident()
        self._environment = os.environ.copy()
        self._changed = False

    def watch(self) -> None:
        """Begin; an interpreter that imports in another way is not watched."""
        system = sys.modules["_frozen_importlib"]
        load = getattr(system, "_find_and_load", None)
        if load is None:
            return

        def timed(name: str, importer: Any) -> ModuleType:
            if name in sys.modules or self._under_way or get_ident() != self._thread:
                return load(name, importer)  # type: ignore[no-any-return]
            self._changed = self._changed or os.environ.copy() != self._environment
            self._under_way, began = True, perf_counter()
            try:
                module: ModuleType = load(name, importer)
            finally:
                self._under_way = False
            self._add(name, perf_counter() - began)
            return module

        system._find_and_load = timed  # type: ignore[attr-defined]

    def take(self) -> dict[str, Any]:
        """What was imported since the last call, for an answer; nothing if nothing was."""
        if not self._seconds:
            return {}
        taken = {"imported": self._modules, "importing": self._seconds}
        self._modules, self._seconds = {}, 0.0
        return taken

    def _add(self, name: str, seconds: float) -> None:
        self._seconds += seconds
        if not self._changed:
            self._modules[name] = round(seconds, 6)
            self._environment = os.environ.copy()  # what a module changes, it changes everywhere


def load(modules: list[str]) -> None:
    """Import what there is; whatever cannot be imported, the task that needs it will say so."""
    import gc
    from importlib import import_module

    gc.disable()  # nothing that an import creates is garbage soon: a tenth of the time
    try:
        for name in modules:
            with suppress(BaseException):  # also that of a module that calls sys.exit
                import_module(name)
    finally:
        gc.enable()
