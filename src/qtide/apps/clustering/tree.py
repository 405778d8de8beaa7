"""A linkage tree as data: light to pass on, whoever builds or cuts it."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.apps.clustering.arrays import Indices, Numbers


@dataclass(frozen=True, slots=True)
class LinkageTree:
    """Its merges in their order: two points, one of each cluster that is merged, and the height."""

    firsts: Indices
    seconds: Indices
    lengths: Numbers

    @property
    def points(self) -> int:
        """How many points the tree spans."""
        return len(self.lengths) + 1
