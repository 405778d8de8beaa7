"""Plug-ins: qtide's own parts and those of other packages, found by entry points.

A package registers a name in a group, as `[project.entry-points."qtide.clusters"]` does; qtide's
own are registered in the same way. Nothing is imported before it is needed.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from qtide.core.errors import UsageError

T = TypeVar("T")


class Plugins(Generic[T]):
    """What is registered in one group; `noun` is what errors call it."""

    def __init__(self, group: str, noun: str) -> None:
        self.group = group
        self.noun = noun
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(_found(self.group))

    def load(self, name: str) -> T:
        """What is registered under a name; UsageError lists the names there are."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        point = _found(self.group).get(name)
        if point is None:
            known = ", ".join(self.names()) or "none"
            raise UsageError(f"there is no {self.noun} {name!r}; there are: {known}")
        try:
            loaded: T = point.load()
        except ImportError as error:
            raise UsageError(
                f"the {self.noun} {name!r} cannot be loaded ({error}); "
                "install what it needs, or remove the package that provides it"
            ) from None
        return loaded


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}
