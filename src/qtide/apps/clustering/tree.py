"""A single-linkage tree as data: light to pass on, whoever builds or cuts it."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.apps.clustering.arrays import Indices, Numbers


@dataclass(frozen=True, slots=True)
class LinkageTree:
    """The edges of a minimum spanning tree, the shortest first."""

    firsts: Indices
    seconds: Indices
    lengths: Numbers

    @property
    def points(self) -> int:
        """How many points the tree spans."""
        return len(self.lengths) + 1
