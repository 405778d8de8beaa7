"""Imports: which modules this process has to load, and how long each takes.

An `import` statement calls one function of Python's own for each module that is not loaded yet, and
for no other. It is timed here, so importing what is loaded costs nothing more.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from contextlib import suppress
from time import perf_counter
from types import ModuleType
from typing import Any


class Imports:
    """What was imported, by name; what a module imports in turn counts for that module."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._under_way = False
        self._thread = get_ident()

    def watch(self) -> None:
        """Begin; an interpreter that imports in another way is not watched."""
        system = sys.modules["_frozen_importlib"]
        load = getattr(system, "_find_and_load", None)
        if load is None:
            return

        def timed(name: str, importer: Any) -> ModuleType:
            if name in sys.modules or self._under_way or get_ident() != self._thread:
                return load(name, importer)  # type: ignore[no-any-return]
            self._under_way, began = True, perf_counter()
            try:
                module: ModuleType = load(name, importer)
            finally:
                self._under_way = False
            self._seconds[name] = round(perf_counter() - began, 6)
            return module

        system._find_and_load = timed  # type: ignore[attr-defined]

    def take(self) -> dict[str, float]:
        """The modules since the last call, and their seconds."""
        if not self._seconds:
            return {}
        taken, self._seconds = self._seconds, {}
        return taken


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
