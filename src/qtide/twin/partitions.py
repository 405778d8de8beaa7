"""Several batch systems beside one world: none goes on past a moment at which another one grants.

A partition in which no hybrid job waits cannot grant anything, so it follows the others. Those in
which one waits go on in turns, from event to event.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf

from qtide.clusters.batch import BatchCluster


class Abreast:
    """Keeps the partitions of a site at the same time."""

    def __init__(self, clusters: Sequence[BatchCluster]) -> None:
        self._clusters = clusters
        self._granting: BatchCluster | None = None

    def until(self, moment: float) -> float | None:
        """When the next hybrid job is answered, if that is at `moment` or before."""
        granted = self._first_grant(moment)
        bound = moment if granted is None else granted
        for cluster in self._clusters:
            if not cluster.asks:
                cluster.until(bound)
        return granted

    def deliver(self) -> None:
        """Let the partition hand its nodes over."""
        assert self._granting is not None
        self._granting.deliver()

    def _first_grant(self, moment: float) -> float | None:
        """Let the partitions in which a hybrid job waits go on, up to the first grant."""
        asking = [cluster for cluster in self._clusters if cluster.asks]
        while asking:
            order = sorted((cluster.upcoming, n) for n, cluster in enumerate(asking))
            if order[0][0] > moment or isinf(order[0][0]):
                break
            self._granting = asking[order[0][1]]
            limit = min(moment, order[1][0]) if len(order) > 1 else moment
            granted = self._granting.until(limit)
            if granted is not None:
                return granted
        return None
