"""A trace: jobs by the time of their submission, as columns of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qtide.errors import UsageError

Column = np.ndarray[Any, Any]
CHUNK = 65_536
"""How many jobs are handed to the scheduler at once."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Jobs in the order of their submission: seconds, nodes, seconds of work and of their limit."""

    submit: Column
    nodes: Column
    run: Column
    limit: Column
    user: Column

    def __len__(self) -> int:
        return len(self.submit)

    @staticmethod
    def of(rows: Iterable[tuple[float, int, float, float, int]]) -> Trace:
        """From rows of submission, nodes, run time, limit and user."""
        table = np.array(list(rows), dtype=float).reshape(-1, 5)
        submit, nodes, run, limit, user = table[np.argsort(table[:, 0], kind="stable")].T
        return Trace(submit, nodes.astype(np.int64), run, limit, user.astype(np.int64))

    def part(self, chosen: Any) -> Trace:
        """Some of its jobs: a slice, a mask or indices."""
        columns = (self.submit, self.nodes, self.run, self.limit, self.user)
        return Trace(*(column[chosen] for column in columns))

    def fitting(self, nodes: int) -> Trace:
        """The jobs that a cluster of so many nodes can run at all."""
        return self.part(self.nodes <= nodes)

    def chunks(self, size: int = CHUNK) -> Iterator[Trace]:
        """Its jobs, piece by piece."""
        for start in range(0, len(self), size):
            yield self.part(slice(start, start + size))

    def check(self, nodes: int) -> None:
        """Refuse jobs that would wait forever, or that are out of order."""
        if len(self) and int(self.nodes.max()) > nodes:
            raise UsageError(
                f"a job of the trace wants {int(self.nodes.max())} nodes, but the cluster has "
                f"{nodes}; name a larger cluster, or leave such jobs out"
            )
        if (np.diff(self.submit) < 0).any():
            raise UsageError("the trace is not in the order of submission; sort it first")
