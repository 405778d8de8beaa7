"""Plug-ins: parts of qtide and of other packages, found through entry points.

A package registers a name in a group such as `[project.entry-points."qtide.clusters"]`; qtide's
own parts are registered the same way. Nothing is imported before it is needed.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from qtide.core.errors import UsageError

T = TypeVar("T")


class Plugins(Generic[T]):
    """The plug-ins of one group; errors call them by `noun`."""

    def __init__(self, group: str, noun: str) -> None:
        self.group = group
        self.noun = noun
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """All names, in alphabetical order."""
        return sorted(_found(self.group))

    def load(self, name: str) -> T:
        """Load the plug-in with a name; UsageError lists the known names."""
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
