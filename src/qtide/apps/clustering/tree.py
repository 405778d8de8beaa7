"""A linkage tree as data: small to pass on, however it is built or cut."""

from __future__ import annotations

from dataclasses import dataclass

from qtide.apps.clustering.arrays import Indices, Numbers


@dataclass(frozen=True, slots=True)
class LinkageTree:
    """Its merges in order: a point of each of the two merged clusters, and the height."""

    firsts: Indices
    seconds: Indices
    lengths: Numbers

    @property
    def points(self) -> int:
        """How many points the tree spans."""
        return len(self.lengths) + 1
